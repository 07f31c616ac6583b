"""Independent checkers and evaluators, one per kind of plan, and the replay of stored bounds; nothing here shares code with a model."""
