"""What follows from a run that was observed: specs, static values, growth."""
