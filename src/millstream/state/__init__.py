"""State: which shard a key belongs to, what is kept for it, and how it is stored.

Nothing here knows which worker owns a shard or how a row got there.
"""
