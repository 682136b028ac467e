"""Steps made from a graph: nodes bound to kernels, what no kernel serves lowered."""
