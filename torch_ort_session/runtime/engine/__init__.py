"""One run, from feeds to results."""
