"""Joins of streams, on rows and on frames."""
