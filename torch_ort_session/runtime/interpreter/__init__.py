"""Runs steps one by one on a frame, and can watch them."""
