"""GroupQueryAttention: attention of new rows over a cache of keys and values."""
