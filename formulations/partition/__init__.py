"""A model's graph into stages on devices."""
