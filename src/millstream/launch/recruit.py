"""The driver's end of a job whose workers are processes: address, secret, bootstraps."""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING

import cloudpickle

from millstream.errors import UsageError
from millstream.launch.resident import Bootstrap, network_key
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.clock import SystemClock
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.tcp import TCPNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.runtime.deployment import Deployment

__all__ = ["Recruiter"]


class Recruiter:
    """Opens the coordinator's port and hands out bootstraps for workers.

    Parameters
    ----------
    host
        Address to listen on, which is also where workers are told to connect.
    """

    def __init__(
        self,
        deployment: Deployment,
        commit: Callable[[], None],
        host: str = "127.0.0.1",
    ) -> None:
        self._deployment = _pickled(deployment)
        self._secret = secrets.token_bytes(32)
        self._job = secrets.token_bytes(16)
        #: Name of the job in Spark and in thread names.
        self.tag = deployment.job
        self.worker_ids = [PeerId(1 + i) for i in range(deployment.worker_count)]
        clock = SystemClock()
        network = TCPNetwork(
            own_id=COORDINATOR,
            job=self._job,
            key=network_key(self._secret),
            clock=clock,
            config=deployment.config,
            host=host,
        )
        self._address = network.address
        self.coordinator = Coordinator(
            self.worker_ids, network, clock, deployment.config, commit
        )

    def bootstrap(self, worker: PeerId) -> Bootstrap:
        """Return what a worker with this id needs to join."""
        return Bootstrap(
            worker,
            self._secret,
            self._job,
            self._address,
            self._deployment,
            tuple(path or os.getcwd() for path in sys.path),  # noqa: PTH109 - as sys.path
        )


def _pickled(deployment: Deployment) -> bytes:
    """Pickle the flow; its functions were checked, its data may still refuse."""
    try:
        data: bytes = cloudpickle.dumps(deployment, protocol=5)
    except Exception as error:
        msg = (
            f"flow {deployment.stages.name!r} cannot be sent to workers: {error}; make "
            "sources, sinks and initial values of plain data"
        )
        raise UsageError(msg) from error
    return data
