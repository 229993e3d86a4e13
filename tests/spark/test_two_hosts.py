"""Whole jobs on two hosts, and somebody who listens on the network between them.

Method: network namespaces joined by a veth pair; master, driver and an executor on one
side, an executor on the other, a raw socket in between.  Rows are regrouped between the
workers, and go to the driver.  Nobody says which protection a job gets: it follows from
the addresses.  Without it, the same listener hears what it is not to hear.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import run_driver
from tests.spark.programs.two_hosts import KEYS, ROWS, word
from tests.support.hosts import Host, needs_hosts, two_hosts
from tests.support.sniffers import Sniffer

from millstream.testing import StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_hosts]

PROGRAM = Path(__file__).parent / "programs" / "two_hosts.py"
AUTHENTICATED = {"spark.authenticate": "true", "spark.authenticate.secret": "s3cr3t"}
ENCRYPTED = {
    **AUTHENTICATED,
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
STRICT = {**ENCRYPTED, "spark.network.crypto.saslFallback": "false"}
ROW_WORDS = [word("row", number).encode() for number in range(ROWS)]
RESULT_WORDS = [word("result", number).encode() for number in range(ROWS)]


@dataclass
class Place:
    """A cluster on two hosts, and the one on which the drivers run."""

    cluster: StandaloneCluster
    near: Host


@dataclass
class Run:
    """What a driver said, which key its state has, and what was heard meanwhile."""

    answer: Any
    state_key: bytes
    sniffer: Sniffer

    def secrets(self) -> list[bytes]:
        """Return what nobody may hear, in all the forms in which it travels."""
        lines = [line for key in self.answer["keys"] for line in key.splitlines()[1:-1]]
        return [
            self.state_key,
            *map(bytes.fromhex, self.answer["secrets"]),
            *(line.encode() for line in lines),
        ]


@pytest.fixture(scope="module")
def two_host_cluster() -> Iterator[Place]:
    """Give a master with a worker beside it and another one on the other host."""
    with two_hosts() as (near, far):
        hosts = {host.address: host.running() for host in (near, far)}
        with StandaloneCluster(workers=2, settings=ENCRYPTED, hosts=hosts) as cluster:
            yield Place(cluster, near)


@pytest.fixture(scope="module")
def guarded(two_host_cluster: Place, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a job, and another one whose far worker is killed; nobody says TLS."""
    home = tmp_path_factory.mktemp("guarded")
    return listened_to(two_host_cluster, home, STRICT, [job(), job(kills=True)])


def job(*, kills: bool = False, insecure: bool = False) -> dict[str, bool]:
    return {"kills": kills, "insecure": insecure}


def listened_to(
    place: Place, home: Path, settings: dict[str, str], jobs: list[dict[str, bool]]
) -> Run:
    """Run a driver on the near host and listen to what leaves it."""
    address, state_key = place.near.address, secrets.token_bytes(32)
    own = {"spark.driver.host": address, "spark.driver.bindAddress": address}
    with Sniffer(place.near) as sniffer:
        result = run_driver(
            PROGRAM,
            place.cluster.master,
            str(home),
            json.dumps({**settings, **own}),
            json.dumps(jobs),
            command=tuple(place.near.running(sys.executable)),
            SPARK_LOCAL_IP=address,
            MILLSTREAM_STATE_KEY=state_key.hex(),
        )
    assert result.returncode == 0, result.stderr
    return Run(json.loads(result.stdout.splitlines()[-1]), state_key, sniffer)


def assert_whole(found: dict[str, Any]) -> None:
    """Check that every row counted once, and that both hosts took part."""
    counted = Counter((key, nth) for key, nth, _ in found["results"])
    assert counted == Counter(
        (key, nth) for key in range(KEYS) for nth in range(1, ROWS // KEYS + 1)
    )
    answered = Counter(text.encode() for _, _, text in found["results"])
    assert answered == Counter(RESULT_WORDS)
    assert found["far_workers"] == 1


def test_a_job_on_two_hosts_speaks_tls_by_itself_and_gives_every_row(
    guarded: Run,
) -> None:
    """Spark's settings and the addresses are all that it was told."""
    assert_whole(guarded.answer["jobs"][0])
    assert guarded.answer["protections"] == ["TLS"]
    assert guarded.answer["jobs"][0]["recoveries"] == 0


def test_a_worker_killed_on_the_far_host_is_replaced_inside_tls(guarded: Run) -> None:
    """Its replacement gets secret, key and certificate over the network once more."""
    assert_whole(guarded.answer["jobs"][1])
    assert guarded.answer["jobs"][1]["recoveries"] >= 1


def test_a_listener_between_the_hosts_hears_neither_secrets_nor_rows(
    guarded: Run,
) -> None:
    """Not on Spark's connections and not on those of the jobs, also after a kill."""
    assert len(guarded.answer["secrets"]) == len(guarded.answer["jobs"])
    assert len(guarded.secrets()) > 1 + 2 * len(guarded.answer["jobs"])
    assert guarded.sniffer.heard_bytes > ROWS * len(ROW_WORDS[0])
    assert guarded.sniffer.heard(*guarded.secrets(), *ROW_WORDS, *RESULT_WORDS) == []


def test_without_protection_the_same_listener_hears_secrets_and_rows(
    two_host_cluster: Place, tmp_path: Path
) -> None:
    """So they would have been heard; and this takes two words of the user's."""
    run = listened_to(two_host_cluster, tmp_path, AUTHENTICATED, [job(insecure=True)])

    assert_whole(run.answer["jobs"][0])
    assert "without encryption" in run.answer["refusal"]
    assert run.answer["protections"] == ["PLAIN"]
    assert run.sniffer.heard(*run.secrets()) == run.secrets()
    assert len(run.sniffer.heard(*ROW_WORDS)) > ROWS // 4
    assert len(run.sniffer.heard(*RESULT_WORDS)) > ROWS // 4
