"""Channel throughput: `TCPNetwork` against bare sockets, between two processes.

Both carry 64 KiB payloads over loopback.  The bare side is `sendmsg` and
`recv_into` and nothing else.  The other sends BATCH packets of one 64 KiB `bytes` row
each, under the credit that a channel has in the engine: at most 1 MiB in flight, and
a CREDIT packet back for every 256 KiB taken.  Its packets have tags, as on loopback they
always have; `secure_channel.py` compares that with TLS and with nothing.  The two
alternate; the medians and their ratio are printed.

Run it with ``python benchmarks/channel_throughput.py [megabytes]``.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import time
from typing import TYPE_CHECKING

from millstream.config import Config
from millstream.ports import PacketArrived
from millstream.protocol.handshake import Protection
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.clock import SystemClock
from millstream.runtime.tcp import TCPNetwork

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from millstream.ports import Address
    from millstream.runtime.tls import Certificate

ROW_BYTES = 64 * 1024
IN_FLIGHT_BYTES = 1024 * 1024
CREDIT_BYTES = 256 * 1024
ROUNDS = 3
READER, WRITER = PeerId(1), PeerId(2)
CHANNEL, GENERATION = ChannelId(1), Generation(1)


def main() -> None:
    """Print the medians of both ways and their ratio."""
    total_bytes = int(sys.argv[1] if len(sys.argv) > 1 else "2048") * 1024 * 1024
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(total_bytes / measured(bare_reader, bare_writer, total_bytes))
        ours.append(total_bytes / measured(reader, writer, total_bytes))
    bare_gbs, ours_gbs = (statistics.median(r) / 1e9 for r in (bare, ours))
    print(f"bare sockets  {bare_gbs:6.2f} GB/s   {rates(bare)}")
    print(f"TCPNetwork    {ours_gbs:6.2f} GB/s   {rates(ours)}")
    print(f"ratio         {ours_gbs / bare_gbs:6.2f}        (goal: at least 0.60)")


def rates(samples: list[float]) -> str:
    """Return the single rounds, for the reader who wants to see the spread."""
    return " ".join(f"{sample / 1e9:.2f}" for sample in samples)


def measured(
    reading: Callable[[Connection, int], None],
    writing: Callable[[Address, int], None],
    total_bytes: int,
) -> float:
    """Run a reader and a writer; return the seconds the reader was receiving."""
    context = multiprocessing.get_context("fork")
    results, results_of_reader = context.Pipe(duplex=False)
    receiver = context.Process(target=reading, args=(results_of_reader, total_bytes))
    receiver.start()
    sender = context.Process(target=writing, args=(results.recv(), total_bytes))
    sender.start()
    receiver.join()
    sender.join()
    return float(results.recv())


def bare_reader(pipe: Connection, total_bytes: int) -> None:
    """Receive with nothing but `recv_into`."""
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send(listener.getsockname())
    sock, _ = listener.accept()
    buffer = bytearray(ROW_BYTES)
    left_bytes = total_bytes - sock.recv_into(buffer)
    started_ns = time.perf_counter_ns()
    while left_bytes > 0:
        left_bytes -= sock.recv_into(buffer)
    pipe.send((time.perf_counter_ns() - started_ns) / 1e9)


def bare_writer(address: Address, total_bytes: int) -> None:
    """Send with nothing but `sendmsg`."""
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    row = bytes(ROW_BYTES)
    left_bytes = total_bytes
    while left_bytes > 0:
        left_bytes -= sock.sendmsg([row])
    sock.close()


Guard = tuple[Protection, "Certificate | None"]
"""What protects a connection, and the certificate if that is TLS."""
TAGS: Guard = (Protection.MAC, None)


def network(own_id: PeerId, guard: Guard, *, listens: bool) -> TCPNetwork:
    """Return one end of the measured connection."""
    return TCPNetwork(
        own_id=own_id,
        job=bytes(16),
        key=b"benchmark",
        clock=SystemClock(),
        config=Config(),
        listens=listens,
        protection=guard[0],
        certificate=guard[1],
    )


def reader(pipe: Connection, total_bytes: int, guard: Guard = TAGS) -> None:
    """Receive batches and give credit back."""
    net = network(READER, guard, listens=True)
    pipe.send(net.address)
    rows = total_bytes // ROW_BYTES
    started_ns = taken_bytes = sequence = 0
    while rows:
        for event in net.poll(1.0):
            if isinstance(event, PacketArrived):
                started_ns = started_ns or time.perf_counter_ns()
                rows -= len(event.packet.body)
                taken_bytes += event.packet.cost
                if taken_bytes >= CREDIT_BYTES:
                    net.send(WRITER, packet(PacketKind.CREDIT, sequence, taken_bytes))
                    taken_bytes = 0
                    sequence += 1
    pipe.send((time.perf_counter_ns() - started_ns) / 1e9)
    net.close()


def writer(address: Address, total_bytes: int, guard: Guard = TAGS) -> None:
    """Send batches as far as the credit goes."""
    net = network(WRITER, guard, listens=False)
    net.connect(READER, address)
    credit_bytes = IN_FLIGHT_BYTES
    row = bytes(ROW_BYTES)
    for sequence in range(total_bytes // ROW_BYTES):
        while credit_bytes < ROW_BYTES:
            credit_bytes += arrived_credit(net, 1.0)
        credit_bytes -= net.send(READER, packet(PacketKind.BATCH, sequence, [row]))
    while net.backlog(READER):
        net.poll(0.1)
    net.close()


def arrived_credit(net: TCPNetwork, timeout_s: float) -> int:
    """Poll once and return the credit that came."""
    return sum(
        event.packet.body
        for event in net.poll(timeout_s)
        if isinstance(event, PacketArrived)
    )


def packet(kind: PacketKind, sequence: int, body: object) -> Packet:
    """Return a packet of the one channel there is."""
    return Packet(kind, GENERATION, CHANNEL, sequence, body)


if __name__ == "__main__":
    main()
