"""What a run tells to whoever watches it."""
