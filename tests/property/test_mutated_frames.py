"""Frames of every kind to every role, changed by somebody who has the keys.

Hypothesis draws frames and changes (`tests.support.mutating`): flipped bits, truncations, splices,
insertions, lengths, opcodes of pickles that ask for memory or for what no row is made of.
Trailers are right, so that nothing but decoding can find it out.  Whatever comes of it, the
decoder gives a frame that its permit allows, asks for more, or raises `RemoteProtocolError`.

It runs in a process of its own with a bounded address space, so that an abort, a hang and
an allocation of what the bytes say are seen.  An example is a frame with a script of changes
at 50 places; `.ci/run` tries 2,000 of them, 100,000 mutants to each role.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.mutating import SWEEP

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="its memory is bounded by /proc")
def test_mutated_frames_end_at_most_a_connection() -> None:
    """No other exception, no abort, no hang, bounded memory."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.mutating"],
        cwd=ROOT,
        env=os.environ | {"RUST_BACKTRACE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-4000:]
    tried, refused = map(int, ended.stdout.split())
    assert tried >= 10 * SWEEP
    assert refused > tried, "most of them are refused by several roles"
