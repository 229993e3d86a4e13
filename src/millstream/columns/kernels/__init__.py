"""Loops over whole columns that Numba compiles, each with a way to do without it.

`loading` imports the `jit_` modules in the background; nothing else may import them at
the top of a file.  Nothing here knows an operator, a flow or a worker.
"""
