"""Helpers that several families of operators share."""
