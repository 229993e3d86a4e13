"""A driver and a cluster in a network of their own, with somebody who listens to it.

Looks for the secret of a job in all that crosses an address which is not loopback, though
it is on this machine.  Run it in a new network namespace: it gives itself the address.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import millstream as ms
from millstream.launch.recruit import Recruiter
from millstream.testing import StandaloneCluster

if TYPE_CHECKING:
    from millstream.launch.resident import Bootstrap
    from millstream.protocol.ids import PeerId

ADDRESS = "10.99.0.1"
ALL_PROTOCOLS = 3
OUTGOING = 4
ETHERNET_BYTES = 14


class Sniffer:
    """Keeps what every TCP connection of the address has carried, in both directions."""

    def __init__(self) -> None:
        self.flows: defaultdict[bytes, bytearray] = defaultdict(bytearray)
        self._own = socket.inet_aton(ADDRESS)
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**26)
        self._socket.bind(("lo", 0))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            frame, where = self._socket.recvfrom(2**17)
            packet = frame[ETHERNET_BYTES:]
            if where[2] != OUTGOING and packet[:1] and packet[0] >> 4 == 4:
                self._take(packet)

    def _take(self, packet: bytes) -> None:
        if packet[9] != socket.IPPROTO_TCP or self._own not in (
            packet[12:16],
            packet[16:20],
        ):
            return
        segment = packet[(packet[0] & 15) * 4 : struct.unpack("!H", packet[2:4])[0]]
        ends = packet[12:20] + segment[:4]
        self.flows[ends] += segment[(segment[12] >> 4) * 4 :]


def noted_bootstraps() -> list[Bootstrap]:
    """Return a list that gets what workers get."""
    found: list[Bootstrap] = []
    made = Recruiter.bootstrap

    def bootstrap(self: Recruiter, worker: PeerId) -> Bootstrap:
        found.append(made(self, worker))
        return found[-1]

    Recruiter.bootstrap = bootstrap  # type: ignore[method-assign]
    return found


def main() -> None:
    settings: dict[str, str] = json.loads(sys.argv[1])
    for command in ("link set lo up", f"addr add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    sniffer, bootstraps = Sniffer(), noted_bootstraps()
    with StandaloneCluster(workers=1, cores=2, settings=settings) as cluster:
        builder = SparkSession.builder.master(cluster.master)
        for key, value in {**settings, "spark.driver.host": ADDRESS}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        answer: dict[str, Any] = {"refusal": "", "rows": 0}
        for is_insecure in (False, True):
            flow = ms.Flow("sniffed")
            rows = flow.from_iterable(range(100)).collect()
            try:
                flow.run(spark=spark, workers=2, insecure=is_insecure)
            except ms.UsageError as error:
                answer["refusal"] = str(error)
            else:
                answer["rows"] = len(rows.result())
                break
        spark.stop()
    secrets = {each.secret for each in bootstraps}
    carried = list(sniffer.flows.values())
    answer["bytes"] = sum(map(len, carried))
    answer["secrets"] = len(secrets)
    answer["seen"] = [s.hex() for s in secrets if any(s in flow for flow in carried)]
    print(json.dumps(answer))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
