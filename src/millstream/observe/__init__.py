"""What a running job looks like from outside, from plain numbers.

Nothing here knows jobs, workers or terminals.
"""
