"""Array kernels with guarantees: arrays in, arrays out; nothing here reads files, prints or knows a formulation."""
