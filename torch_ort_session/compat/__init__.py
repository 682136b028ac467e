"""Other interfaces over the same session."""
