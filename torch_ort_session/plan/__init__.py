"""When and where each step of a model runs."""
