"""Jobs on unrelated machines."""
