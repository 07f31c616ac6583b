"""Independent checkers and evaluators, one per kind of plan, and the replay of stored bounds; they share no code with a model."""
