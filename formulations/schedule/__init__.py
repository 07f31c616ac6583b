"""Task graphs in time."""
