"""Kernels of the com.microsoft domain, one family a file."""
