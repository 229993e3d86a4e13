"""What users type: flows, streams, keys and functions.

Building a flow runs nothing: every verb adds a node to the logical plan, and every
node is checked the moment it is made.
"""
