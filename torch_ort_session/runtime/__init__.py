"""Runs plans: frames, execution."""
