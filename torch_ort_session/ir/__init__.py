"""What a model says: loading, types, schemas, frozen graphs."""
