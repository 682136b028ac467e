"""Kernels of the default domain, one family a file."""
