"""Decides how a run is made; owns entries and session state."""
