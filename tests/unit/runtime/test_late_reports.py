"""What a worker stored for its tasks: told late, or in no way that a message can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.worker_harness import SECOND, WorkerHarness

import millstream as ms
from millstream.protocol.messages import Deploy, Failed, OpenEpoch, Start
from millstream.runtime.background import Inline
from millstream.runtime.wire import PacketEncoder
from millstream.runtime.worker import WorkerPhase
from millstream.state.settings import StateSettings

if TYPE_CHECKING:
    from millstream.ports import Done
    from millstream.protocol.ids import PeerId
    from millstream.protocol.packets import Packet


class LateBackground(Inline):
    """Says that a piece is done when it is asked to."""

    is_late = True

    def poll(self) -> list[Done]:
        return [] if self.is_late else super().poll()


class Endless(ms.Source[int], ms.SourceReader[int]):
    """Counts its rows beyond what a message can hold."""

    offset = 2**70

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split("all", task_count)]

    def open(self, split: ms.Split, offset: int, config: ms.Config) -> Endless:
        return self

    def read(self, limit: int) -> list[int]:
        return [limit]

    def close(self) -> None:
        pass


def test_a_report_that_cannot_be_sent_is_a_failure_that_is_told() -> None:
    """Else the worker would end without a word, and each one in its place."""
    flow = ms.Flow("endless")
    flow.read(Endless()).for_each(lambda _: None)
    background = LateBackground()
    stand = WorkerHarness(flow, 1, StateSettings(16), background)
    encoder, link = PacketEncoder(1_000_000), stand.worker._network
    send = link.send

    def encoded(peer: PeerId, packet: Packet) -> int:
        encoder.encode(packet)
        return send(peer, packet)

    stand.run(3)
    stand.tell(OpenEpoch(1, (1, 0, ("snapshot",))))
    stand.step(3)
    link.send = encoded  # type: ignore[method-assign]  # the hub encodes nothing
    background.is_late = False

    failed = [m for m in stand.step(3) if isinstance(m, Failed)]

    assert "OverflowError" in failed[0].text


def test_worker_whose_tasks_moved_away_has_nothing_to_finish() -> None:
    """What it stored for them may be told late; `Finished` of no task makes no sense."""
    background = LateBackground()
    flow = ms.Flow("narrow")
    flow.from_iterable(range(1_000_000)).for_each(lambda _: None)
    stand = WorkerHarness(flow, 2, StateSettings(16), background)
    stand.hub.join(SECOND)
    stand.step()
    members = ((1, "", 0), (2, "", 0))
    stand.tell(Deploy(1, members, (1, 2), (0, 0)))
    stand.step(2)
    stand.tell(Start(1))
    stand.tell(OpenEpoch(1, (1, 0, ("snapshot",))))
    stand.step(3)

    stand.tell(Deploy(2, members, (2, 1), (0, 0)))
    stand.step(2)
    stand.tell(Start(2))
    stand.step()
    assert stand.worker.phase is WorkerPhase.RUNNING
    background.is_late = False

    assert stand.step(3) == []
