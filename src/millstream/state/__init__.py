"""Keyed state: which shard a key belongs to, and (later) what is kept for it.

Nothing here knows which worker owns a shard or how a row got there.
"""
