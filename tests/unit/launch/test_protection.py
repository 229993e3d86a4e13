"""Which protection a job gets, and what the user is told."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import millstream as ms
from millstream.launch import bootstrapping
from millstream.launch.bootstrapping import protection_of
from millstream.launch.worker_main import Bootstrap
from millstream.protocol.handshake import Protection
from millstream.protocol.ids import PeerId
from millstream.runtime.tls import make_certificate


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["127.0.0.1"], Protection.MAC),
        (["127.0.0.1", "127.8.9.10"], Protection.MAC),
        (["::1"], Protection.MAC),
        (["10.1.2.3"], Protection.TLS),
        (["127.0.0.1", "0.0.0.0"], Protection.TLS),
        (["10.1.2.3", "127.0.0.1"], Protection.TLS),
        (["no-such-host.invalid"], Protection.TLS),
    ],
)
def test_only_loopback_goes_without_tls(hosts: list[str], expected: Protection) -> None:
    """An address that others can reach is enough, and one that nobody knows is too."""
    assert protection_of(*hosts, is_insecure=False) is expected
    assert protection_of(*hosts, is_insecure=True) is Protection.PLAIN


def test_a_bootstrap_shows_no_secret() -> None:
    """It may end up in a log or in the message of a failing test."""
    certificate = make_certificate()
    bootstrap = Bootstrap(
        PeerId(1),
        b"the secret",
        bytes(16),
        ("127.0.0.1", 1),
        b"pickled functions",
        (),
        1,
        Protection.TLS,
        certificate,
    )

    for secret in ("the secret", "pickled functions", "PRIVATE KEY"):
        assert secret not in repr(bootstrap)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[], list(range(5000))], ids=["empty", "rows"])
@pytest.mark.parametrize("protection", list(Protection), ids=lambda each: each.name)
def test_results_do_not_depend_on_the_protection(
    monkeypatch: pytest.MonkeyPatch, protection: Protection, rows: list[int]
) -> None:
    """Two processes, a shuffle, and results that go to the driver."""
    monkeypatch.setattr(
        bootstrapping, "protection_of", lambda *_, is_insecure: protection
    )
    flow = ms.Flow("sums")
    sums = flow.from_iterable(rows).group_by(lambda i: i % 7).sum().collect()

    flow.run(on="processes", workers=2)

    assert dict(sums.result()) == {key: sum(rows[key::7]) for key in range(7) if rows}


@pytest.mark.slow
def test_insecure_says_what_it_gives_up(caplog: Any) -> None:
    """Whoever reads the log can see that nothing is protected."""
    flow = ms.Flow("plain")
    flow.from_iterable([1]).collect()

    with caplog.at_level(logging.WARNING, logger="millstream"):
        flow.run(on="processes", workers=1, insecure=True)

    assert "neither encrypted nor protected against injection" in caplog.text
