"""Drivers as programs of their own: embedded, submitted, on a cluster, on Connect."""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.spark.driving import eventually, is_gone, run_driver

from millstream.testing.standalone import StandaloneCluster

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

PROGRAMS = Path(__file__).parent / "programs"
BARE_PYTHON = """\
#!/bin/sh
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""


def answer_of(result: subprocess.CompletedProcess[str]) -> Any:
    """Return what a driver printed last, as JSON."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def spark_submit() -> tuple[str, ...]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return (str(Path(spec.origin).parent / "bin" / "spark-submit"),)


def open_address() -> str | None:
    """Return an address of this machine that others may reach."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family is socket.AF_INET and not address.address.startswith("127.")
    ]
    return found[0] if found else None


def test_a_flow_without_a_session_brings_its_own_and_takes_it_away() -> None:
    """Runs follow each other or share one, on this Python; nothing of them stays."""
    answer = answer_of(run_driver(PROGRAMS / "own_session.py"))

    cores = os.cpu_count()
    assert answer == {
        "default": [cores] * (cores or 1),
        "is_up_after_first": False,
        "three": [3, 3, 3],
        "at_once": [[0, 1, 2], [0, 1, 2]],
        "is_up_at_the_end": False,
        "python": "/no/such/python",
    }


def test_without_java_one_sentence_says_what_to_install() -> None:
    """The first thing that goes wrong on a new machine."""
    result = run_driver(PROGRAMS / "plain.py", PATH="", JAVA_HOME="")

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "millstream.errors.LaunchError: Spark needs Java, and there is none on the PATH; "
        "install a Java 17 runtime (or newer) and set JAVA_HOME, or run on='local'"
    )


def test_spark_submit_runs_a_flow_that_says_nothing() -> None:
    """Where to run is spark-submit's business."""
    command = (*spark_submit(), "--master", "local[2]")

    result = run_driver(PROGRAMS / "plain.py", command=command)

    assert result.returncode == 0, result.stderr
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["worker", "0"],
        ["worker", "1"],
    ]


def test_spark_submit_runs_a_flow_on_a_cluster(cluster: StandaloneCluster) -> None:
    """A worker starts on every executor that has come by then, on one at least."""
    command = (*spark_submit(), "--master", cluster.master)

    result = run_driver(PROGRAMS / "plain.py", command=command)

    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) in {1, 2}


def test_the_command_line_runs_a_flow_on_a_cluster(cluster: StandaloneCluster) -> None:
    """`millstream run` takes the master where the program names none."""
    command = (sys.executable, "-m", "millstream", "run")

    result = run_driver(
        PROGRAMS / "plain.py",
        "--master",
        cluster.master,
        "--workers",
        "2",
        command=command,
    )

    assert result.returncode == 0, result.stderr
    assert "worker 0" in result.stdout
    assert "worker 1" in result.stdout


def test_executors_that_lack_millstream_get_it_and_open_ports_are_refused(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """Two executors import the shipped archive; on an open address nothing starts."""
    python = tmp_path / "python"
    packages = Path(psutil.__file__).parent.parent
    python.write_text(BARE_PYTHON.format(packages=packages, python=sys.executable))
    python.chmod(0o755)
    arguments = [cluster.master, *filter(None, [open_address()])]

    answer = answer_of(
        run_driver(PROGRAMS / "on_cluster.py", *arguments, PYSPARK_PYTHON=str(python))
    )

    for places in answer["places"]:
        executors = {executor for executor, _ in places}
        assert len(executors) == len(places) == 2
        assert all(".zip" in file for _, file in places)
    assert answer["count"] == 10
    if len(arguments) > 1:
        assert f"the driver at {arguments[1]}, and Spark" in answer["refusal"]
        assert "spark.authenticate=true and spark.network" in answer["refusal"]


@pytest.mark.timeout(300)
def test_a_flow_runs_where_spark_authenticates_its_own_connections() -> None:
    """On a local master and on a cluster, which may then listen on an open address.

    That is refused where Spark authenticates and does not encrypt.
    """
    secret = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "s3cr3t",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
    }
    with StandaloneCluster(workers=1, cores=2, settings=secret) as cluster:
        answer = answer_of(
            run_driver(
                PROGRAMS / "authenticated.py",
                cluster.master,
                open_address() or "127.0.0.1",
                json.dumps(secret),
            )
        )

    sums = {str(key): sum(range(key, 1000, 3)) for key in range(3)}
    assert answer["refusal"] == "" or "without encryption" in answer["refusal"]
    assert bool(answer.pop("refusal")) == (open_address() is not None)
    assert answer == {"local": sums, "cluster": sums, "stream": 20}


def test_a_flow_runs_and_is_cancelled_on_spark_connect() -> None:
    """Without a SparkContext, tags take the place of job groups."""
    pytest.importorskip("grpc_status", reason="needs the 'connect' extra (grpcio)")

    answer = answer_of(run_driver(PROGRAMS / "remote.py"))

    assert answer["session"] == "pyspark.sql.connect.session"
    assert answer["counts"] == [[0, 34], [1, 33], [2, 33]]
    assert answer["workers"] == 2
    assert answer["table"] == sum(range(100))
    assert answer["first"] == 20
    assert "cancelled" in answer["cancelled"]
    assert answer["count"] == 10
    eventually(lambda: is_gone(answer["pid"]))
