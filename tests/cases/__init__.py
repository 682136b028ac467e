"""Op cases, one file a family."""
