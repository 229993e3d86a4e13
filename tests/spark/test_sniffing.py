"""Somebody listens to Spark: what it sends to executors, with and without encryption.

Method: cluster and driver run in a network namespace of their own, in which a raw socket
records every byte that crosses an address other than loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.driving import run_driver

PROGRAM = Path(__file__).parent / "programs" / "sniffed.py"
APART = ("unshare", "--net")
AUTHENTICATED = {"spark.authenticate": "true", "spark.authenticate.secret": "s3cr3t"}
ENCRYPTED = {**AUTHENTICATED, "spark.network.crypto.enabled": "true"}


def can_make_networks() -> bool:
    try:
        done = subprocess.run([*APART, "ip", "link"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0 and os.geteuid() == 0


pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not can_make_networks(), reason="needs root, unshare and ip for a network"
    ),
]


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_the_secret_is_heard_where_spark_does_not_encrypt_and_nowhere_else(
    *, is_encrypted: bool
) -> None:
    """Without encryption a start is refused, and what insecure=True gives up is heard."""
    settings = ENCRYPTED if is_encrypted else AUTHENTICATED
    result = run_driver(PROGRAM, json.dumps(settings), command=(*APART, sys.executable))
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout.splitlines()[-1])

    assert answer["rows"] == 100
    assert answer["secrets"] == 1
    assert answer["bytes"] > 10_000
    assert len(answer["seen"]) == (0 if is_encrypted else 1)
    assert ("without encryption" in answer["refusal"]) != is_encrypted
