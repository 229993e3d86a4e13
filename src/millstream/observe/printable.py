"""Text from outside, such as a name in a manifest, as a terminal and a log may show it.

A name may hold anything.  What would move the cursor, colour the screen, forge another line
of a log or turn the order of letters round is shown as Python would write it.
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, *, keep: str = "") -> str:
    r"""Return text with an escape in the place of every letter that is not one.

    Parameters
    ----------
    keep
        Control characters that are meant, such as line ends of a text with many lines.

    Examples
    --------
    >>> print(printable("nightly\x1b[2J\nERROR é"))
    nightly\x1b[2J\nERROR é
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in keep
        else letter.encode("unicode_escape").decode()
        for letter in text
    )
