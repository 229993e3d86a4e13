"""The command line: ``millstream run``, ``explain``, ``simulate`` and ``version``.

`main` has the commands; the other modules do one part of them each.  What a flow is
and how it runs is known below; here is only what a person types and sees.
"""
