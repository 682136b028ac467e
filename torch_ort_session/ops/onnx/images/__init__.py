"""Operators on images and other grids: convolution, pooling, resampling."""
