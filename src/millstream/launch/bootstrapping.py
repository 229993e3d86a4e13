"""The driver's end of a job whose workers are processes: address, secret, bootstraps.

Here it is decided, once per job, how its connections are protected.  Workers are told
with their bootstrap; nobody negotiates.
"""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING

from millstream.errors import LaunchError
from millstream.launch.machine import is_loopback
from millstream.launch.packaging import packed
from millstream.launch.worker_main import Bootstrap, network_key
from millstream.observe.log import log_level, logger
from millstream.protocol.handshake import Protection
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.background import for_driver
from millstream.runtime.clock import SystemClock
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.tcp import TCPNetwork
from millstream.runtime.tls import make_certificate

if TYPE_CHECKING:
    from millstream.config import Config
    from millstream.ports import Clock
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import DriverContext

__all__ = ["Bootstrapper", "protection_of"]

_LOG = logger("launch")


def protection_of(*hosts: str, is_insecure: bool) -> Protection:
    """Return what guards the connections of a job whose driver is at these addresses.

    Whoever can read what passes on loopback can read the memory of the processes too,
    so there it is enough that nobody can add to it.

    Examples
    --------
    >>> protection_of("127.0.0.1", is_insecure=False).name
    'MAC'
    >>> protection_of("127.0.0.1", "0.0.0.0", is_insecure=False).name
    'TLS'
    """
    if is_insecure:
        return Protection.PLAIN
    return Protection.MAC if all(map(is_loopback, hosts)) else Protection.TLS


class Bootstrapper:
    """Opens the coordinator's port and hands out bootstraps for workers.

    Parameters
    ----------
    host
        Where workers are told to connect.
    bind_host
        Address to listen on, where it is not `host`.
    cores
        How many cores each worker may keep busy.
    is_insecure
        Whether the user does without protection.

    Raises
    ------
    LaunchError
        If this machine has no such address.
    """

    def __init__(
        self,
        deployment: Deployment,
        driver: DriverContext,
        host: str = "127.0.0.1",
        bind_host: str | None = None,
        *,
        cores: int,
        is_insecure: bool = False,
    ) -> None:
        self._deployment = packed(deployment)
        self._cores = cores
        bind_host = bind_host or host
        self._protection = protection_of(host, bind_host, is_insecure=is_insecure)
        is_tls = self._protection is Protection.TLS
        self._certificate = make_certificate() if is_tls else None
        if is_insecure:
            _LOG.warning(
                "%s: insecure=True: its connections at %s are neither encrypted nor "
                "protected against injection; whoever is on the way can read the rows "
                "and run code in the workers",
                deployment.job,
                host,
            )
        self._secret = secrets.token_bytes(32)
        self._job = secrets.token_bytes(16)
        #: Name of the job in Spark and in thread names.
        self.tag = deployment.job
        self.worker_ids = [PeerId(1 + i) for i in range(deployment.worker_count)]
        clock = SystemClock()
        network = self._listen(bind_host, clock, deployment.config)
        self._address = (host, network.address[1])
        self.coordinator = Coordinator(
            self.worker_ids,
            deployment,
            network,
            clock,
            background=for_driver(),
            driver=driver,
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
                protection=self._protection,
                certificate=self._certificate,
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
            self._protection,
            self._certificate,
            log_level(),
        )
