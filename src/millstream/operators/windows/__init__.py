"""Windows, on rows and on frames."""
