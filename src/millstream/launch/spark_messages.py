"""Read what Spark says: masters and failures, in the words of its own messages."""

from __future__ import annotations

import os
import re

__all__ = ["first_words", "local_slots", "python_advice", "spark_reason"]

_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


def local_slots(master: str) -> int | None:
    """Return the slots of a local master; None for every other."""
    match = _LOCAL_MASTER.fullmatch(master)
    if match is None:
        return None
    if match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)


def spark_reason(text: str) -> str:
    """Return the part of a Spark failure that says what happened on the executor."""
    lost = re.search(r"ExecutorLostFailure \((executor \S+).*?Reason: ([^\n]+)", text)
    if lost:
        return f"its {lost[1]} was lost: {lost[2].strip().rstrip('.')}"
    if "Python worker exited unexpectedly" in text:
        return "its Python process ended unexpectedly"
    if "cancelled" in text:
        return "its Spark job was cancelled"
    python_error = re.findall(
        r"^(\w+(?:\.\w+)*(?:Error|Exception)\b.*)$", text, re.MULTILINE
    )
    if python_error:
        return f"its Spark task failed: {python_error[-1].strip()}"
    return f"its Spark job ended: {first_words(text)}"


def python_advice(python: str, own: str) -> str:
    """Say which Python executors run, and how to give them another.

    Examples
    --------
    >>> print(python_advice("python3", "/venv/bin/python").partition(";")[0])
    Spark runs workers with 'python3', and this program runs with '/venv/bin/python'
    """
    return (
        f"Spark runs workers with {python!r}, and this program runs with {own!r}; set "
        "PYSPARK_PYTHON to a Python that has Millstream's packages before the session "
        "starts"
    )


def first_words(text: str) -> str:
    """Return the line that names the error, without Java's stack and py4j's preamble."""
    lines = [line.strip(" :\t") for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    return lines[0].rstrip(".") if lines else "no reason was given"
