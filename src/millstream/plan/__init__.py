"""From the user's program to tasks: logical graph, stages, tasks and channels.

Pure data and pure functions: nothing here runs a user function, opens a file or
knows about workers' processes.
"""
