"""Regions: what is recorded, what runs eagerly between, and why."""
