"""Timestamps, watermarks and the order of time."""
