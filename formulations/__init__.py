"""The mathematics: one folder a family, one file a problem."""
