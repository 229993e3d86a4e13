"""What the protection of connections costs: none, tags on frames, TLS.

**Throughput.**  The channel of ``channel_throughput.py``, 64 KiB batches between two
processes over loopback.

**Latency.**  The keyed count of ``latency.py``, 10,000 records per second on two
processes, and the age of every record where its count comes out.

The three take turns; medians of the rounds are compared.

    python benchmarks/secure_channel.py [--quick]
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import channel_throughput as channel
import measure
import numpy as np
from paced import Metronome

import millstream as ms
from millstream.launch import bootstrapping
from millstream.protocol.handshake import Protection
from millstream.runtime.tls import make_certificate

WORKERS, KEYS = 2, 100
INTERVAL_NS, RATE = 100_000, 10_000
NAMES = {
    Protection.PLAIN: "plain",
    Protection.MAC: "tags",
    Protection.TLS: "TLS",
}
TLS_SHARE, TAIL_SHARE = 0.6, 1.1
"""At least so much of the throughput, and at most so much of the latency, of plain."""
MIB = 1024 * 1024


def main() -> None:
    """Measure both and print them."""
    options = measure.arguments(__doc__ or "").parse_args()
    total_bytes = (256 if options.quick else 2048) * MIB
    seconds = 2 if options.quick else 8
    certificate = make_certificate()
    rates: dict[str, list[float]] = {name: [] for name in NAMES.values()}
    middles: dict[str, list[float]] = {name: [] for name in NAMES.values()}
    tails: dict[str, list[float]] = {name: [] for name in NAMES.values()}
    for _ in range(options.rounds):
        for protection, name in NAMES.items():
            measure.say(f"throughput, {name}")
            guard = (protection, certificate)
            taken_s = channel.measured(
                partial(channel.reader, guard=guard),
                partial(channel.writer, guard=guard),
                total_bytes,
            )
            rates[name].append(total_bytes / taken_s / 1e9)
    for _ in range(options.rounds):
        for protection, name in NAMES.items():
            measure.say(f"latency, {name}")
            ages = keyed_ages(protection, seconds)
            middles[name].append(float(np.percentile(ages, 50)))
            tails[name].append(float(np.percentile(ages, 99)))
    rate = {name: statistics.median(samples) for name, samples in rates.items()}
    tail = {name: statistics.median(samples) for name, samples in tails.items()}
    measure.finish(
        measure.Report(
            name="secure_channel",
            is_quick=options.quick,
            sizes={
                "MiB per round": total_bytes // MIB,
                "records a second to count": RATE,
                "workers": WORKERS,
            },
            samples_unit="",
            samples={
                **{f"GB/s, {name}": samples for name, samples in rates.items()},
                **{f"ms, p50, {name}": samples for name, samples in middles.items()},
                **{f"ms, p99, {name}": samples for name, samples in tails.items()},
            },
            figures=[
                measure.at_least(
                    "throughput, TLS over plain",
                    rate["TLS"] / rate["plain"],
                    "x",
                    TLS_SHARE,
                ),
                measure.Figure(
                    "throughput, tags over plain", rate["tags"] / rate["plain"], "x"
                ),
                *(
                    measure.at_most(
                        f"p99, keyed count, {name} over plain",
                        tail[name] / tail["plain"],
                        "x",
                        TAIL_SHARE,
                    )
                    for name in ("tags", "TLS")
                ),
            ],
        )
    )


def keyed_ages(protection: Protection, seconds: int) -> list[float]:
    """Return the ages of all records of a keyed count where the counts come out."""
    bootstrapping.protection_of = lambda *_, is_insecure: protection  # noqa: ARG005
    records = RATE * seconds
    flow = ms.Flow("keyed-count", buffer=ms.adaptive(1024, "5ms"))
    due = flow.read(Metronome(records, INTERVAL_NS))
    keyed = due.key_by(lambda due_ns: due_ns // INTERVAL_NS % KEYS)
    counted = keyed.map_with_state(0, lambda count, due: (count + 1, (count + 1, due)))
    ages = counted.map(lambda row: (row[0], (time.monotonic_ns() - row[1]) / 1e6))
    found = ages.drop_key().collect()
    flow.run(on="processes", workers=WORKERS)
    counts, milliseconds = zip(*found.result(), strict=True)
    measure.check(NAMES[protection], max(counts), records // KEYS)
    return list(milliseconds)


if __name__ == "__main__":
    main()
