"""Observers of runs, timelines and counters."""
