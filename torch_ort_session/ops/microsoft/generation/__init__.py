"""Searches that call a decoder token by token: operators, and what they share."""
