"""The shells: what carries out the decisions of `millstream.protocol`.

Sockets, selectors and threads live here and nowhere below.
"""
