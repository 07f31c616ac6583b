"""Divisible work: shards of a data set, batch sizes, a load that can be cut anywhere."""
