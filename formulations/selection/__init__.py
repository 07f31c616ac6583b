"""One choice a layer or a stage under budgets."""
