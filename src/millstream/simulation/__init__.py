"""The same workers and coordinator on one thread, with virtual time and seeded faults.

`network`, `disk` and `connectors` stand for the world outside, `cluster` picks whose turn
it is, `checkers` and `snapshot_checker` say what must never happen, `observer` is their
eyes, and `run` puts a flow through many seeds.
Nothing in here runs in production, and nothing in here knows how a flow was written.
"""
