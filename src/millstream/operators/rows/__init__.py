"""Operators on rows; nothing here imports Polars."""
