"""Places in an arena for values that do not live at the same time."""
