"""Runs whose shapes or bodies vary without a capture each."""
