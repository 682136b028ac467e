"""One signature's captured graph: segments, seams, guards."""
