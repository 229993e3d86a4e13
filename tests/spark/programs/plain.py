"""A driver that says only `flow.run()`; somebody else says where."""

from __future__ import annotations

import os

import millstream as ms


def places(rank: int, size: int) -> list[tuple[int, int, str]]:
    return [(rank, os.getpid(), ms.__file__)]


def main() -> None:
    flow = ms.Flow("plain")
    found = flow.from_parallel(places).collect()
    flow.run()
    for rank, pid, file in sorted(found.result()):
        print(f"worker {rank} {pid} {file}")  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
