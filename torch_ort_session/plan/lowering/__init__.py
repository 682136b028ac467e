"""Steps made from a graph: every node bound to its kernel, nodes no kernel serves lowered."""
