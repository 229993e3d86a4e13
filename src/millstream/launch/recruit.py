"""The driver's end of a job whose workers are processes: address, secret, bootstraps."""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING

from millstream.errors import LaunchError
from millstream.launch.parcel import packed
from millstream.launch.resident import Bootstrap, network_key
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.background import Threaded
from millstream.runtime.clock import SystemClock
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.tcp import TCPNetwork

if TYPE_CHECKING:
    from millstream.config import Config
    from millstream.ports import Clock
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import Backing

__all__ = ["Recruiter"]


class Recruiter:
    """Opens the coordinator's port and hands out bootstraps for workers.

    Parameters
    ----------
    host
        Where workers are told to connect.
    bind_host
        Address to listen on, where it is not `host`.
    cores
        How many cores each worker may keep busy.

    Raises
    ------
    LaunchError
        If this machine has no such address.
    """

    def __init__(
        self,
        deployment: Deployment,
        backing: Backing,
        host: str = "127.0.0.1",
        bind_host: str | None = None,
        *,
        cores: int,
    ) -> None:
        self._deployment = packed(deployment)
        self._cores = cores
        self._secret = secrets.token_bytes(32)
        self._job = secrets.token_bytes(16)
        #: Name of the job in Spark and in thread names.
        self.tag = deployment.job
        self.worker_ids = [PeerId(1 + i) for i in range(deployment.worker_count)]
        clock = SystemClock()
        network = self._listen(bind_host or host, clock, deployment.config)
        self._address = (host, network.address[1])
        self.coordinator = Coordinator(
            self.worker_ids,
            deployment,
            network,
            clock,
            background=Threaded("millstream-driver-files"),
            backing=backing,
        )

    def _listen(self, host: str, clock: Clock, config: Config) -> TCPNetwork:
        try:
            return TCPNetwork(
                own_id=COORDINATOR,
                job=self._job,
                key=network_key(self._secret),
                clock=clock,
                config=config,
                host=host,
            )
        except OSError as error:
            msg = (
                f"the coordinator cannot listen on {host} ({error}); set "
                "spark.driver.host to an address of this machine that the executors "
                "can reach"
            )
            raise LaunchError(msg) from error

    def bootstrap(self, worker: PeerId) -> Bootstrap:
        """Return what a worker with this id needs to join."""
        return Bootstrap(
            worker,
            self._secret,
            self._job,
            self._address,
            self._deployment,
            tuple(path or os.getcwd() for path in sys.path),  # noqa: PTH109 - as sys.path
            self._cores,
        )
