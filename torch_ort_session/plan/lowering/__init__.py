"""Steps made from a graph: every node bound to its kernel, what no kernel serves lowered."""
