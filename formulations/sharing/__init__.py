"""A cluster's time shares: fairness, makespan, finish times and cost of jobs that take turns on devices of several types."""
