"""A real job all of whose connections to the coordinator pass somebody in the middle.

The relay passes the handshakes on, reads everything, and injects a packet that runs code
in the driver once the job runs.  With snapshots the job goes back and ends as if nothing
had been; without, it fails and says which worker is gone.
"""

from __future__ import annotations

import pickle
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually
from tests.support.relays import Relay

import millstream as ms
from millstream.launch import bootstrapping
from millstream.protocol.handshake import Protection
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.messages import Emitted
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.integrity import CHECKSUM
from millstream.runtime.wire import PacketEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

ROWS = 4_000
SUMS = sorted((key, sum(range(key, ROWS, 7))) for key in range(7))
SECRET_ROW = "a row that nobody on the way may read"


class InTheMiddle:
    """Stands between all workers and the coordinator of the next job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, protection: Protection) -> None:
        self.relay: Relay | None = None
        self.secrets: list[bytes] = []
        bootstrap = bootstrapping.Bootstrapper.bootstrap

        def diverted(bootstrapper: bootstrapping.Bootstrapper, worker: PeerId) -> Any:
            real = bootstrap(bootstrapper, worker)
            if self.relay is None:
                self.relay = Relay(real.coordinator)
                self.secrets.append(real.secret)
            return replace(real, coordinator=self.relay.address)

        monkeypatch.setattr(bootstrapping.Bootstrapper, "bootstrap", diverted)
        monkeypatch.setattr(
            bootstrapping, "protection_of", lambda *_, is_insecure: protection
        )

    def inject(self, data: bytes) -> None:
        """Put bytes into every connection there is."""
        assert self.relay is not None
        for sock in self.relay.to_target:
            sock.sendall(data)

    @property
    def read(self) -> bytes:
        """Everything that was said in both directions."""
        assert self.relay is not None
        return bytes(self.relay.from_clients + self.relay.from_target)


@contextmanager
def standing(middle: InTheMiddle) -> Iterator[None]:
    """Pass bytes on in a thread."""
    is_over = threading.Event()

    def pass_on() -> None:
        while not is_over.is_set():
            if middle.relay is None:
                is_over.wait(0.005)
            else:
                middle.relay.poll(0.02)

    thread = threading.Thread(target=pass_on)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        if middle.relay is not None:
            middle.relay.close()


def sums() -> tuple[ms.Flow, Any]:
    flow = ms.Flow("sums")

    def numbers(rank: int, size: int) -> Iterator[int]:
        pause = threading.Event()
        for number in range(rank, ROWS, size):
            if number % 100 == 0:
                pause.wait(0.05)
            yield number

    totals = flow.from_parallel(numbers).group_by(lambda i: i % 7).sum()
    return flow, totals.collect()


class Exploit:
    """A row that leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def forged(path: Path) -> bytes:
    """Return results of a sink that run code in the driver, for every number of sinks."""
    payload = pickle.dumps([Exploit(path)])
    encoder, packets = PacketEncoder(1 << 20), []
    for sink in range(10):
        body = Emitted(1, 1, sink, 0, 0, payload)
        packet = Packet(PacketKind.MESSAGE, Generation(1), ChannelId(0), 0, body)
        packets += CHECKSUM.closed(*encoder.encode(packet))
    return b"".join(packets) + bytes(16)


@pytest.mark.parametrize("protection", [Protection.MAC, Protection.TLS])
def test_an_injection_costs_a_connection_and_the_job_recovers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protection: Protection
) -> None:
    """The rows are those of a job that nobody disturbed."""
    middle = InTheMiddle(monkeypatch, protection)
    flow, found = sums()
    with standing(middle):
        job = flow.start(
            on="processes", workers=2, state=tmp_path / "state", snapshot_every="200ms"
        )
        eventually(lambda: job.status() == "running")
        middle.inject(forged(tmp_path / "pwned"))
        job.wait()

    assert sorted(found.result()) == SUMS
    assert not (tmp_path / "pwned").exists()
    assert any("is started in its place" in line for line in job.story())


def test_an_injection_fails_a_job_without_snapshots_cleanly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is nothing to go back to, and no wrong result either."""
    middle = InTheMiddle(monkeypatch, Protection.MAC)
    flow, _ = sums()
    with standing(middle):
        job = flow.start(on="processes", workers=2)
        eventually(lambda: job.status() == "running")
        middle.inject(forged(tmp_path / "pwned"))
        with pytest.raises(ms.WorkerLostError):
            job.wait()

    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("protection", [Protection.MAC, Protection.TLS])
def test_what_passes_shows_no_secret_and_inside_tls_no_row(
    monkeypatch: pytest.MonkeyPatch, protection: Protection
) -> None:
    """Results go to the driver through the relay; tags hide nothing, TLS everything."""
    middle = InTheMiddle(monkeypatch, protection)
    flow = ms.Flow("rows")
    found = flow.from_iterable([SECRET_ROW] * 100).collect()
    with standing(middle):
        flow.run(on="processes", workers=2)
        assert found.result() == [SECRET_ROW] * 100

    assert (SECRET_ROW.encode() in middle.read) == (protection is Protection.MAC)
    assert middle.secrets[0] not in middle.read
