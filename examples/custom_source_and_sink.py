"""Read from a source of your own and write to a sink of your own.

What it shows: a source cut into splits that can be read again from any offset, and a
sink whose files get their names only when the whole job has succeeded.

    millstream run examples/custom_source_and_sink.py --on local --workers 2
"""
# ruff: noqa: ARG002, D101, D102 - millstream.connectors.base explains every method

from __future__ import annotations

import tempfile
from calendar import mdays
from pathlib import Path

import millstream as ms


class Calendar(ms.Source[str]):
    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"month {month}", month) for month in range(1, 13)]

    def open(self, split: ms.Split, offset: int, config: ms.Config) -> Days:
        return Days(split.payload, offset)


class Days(ms.SourceReader[str]):
    offset = 0  # the last day that was read

    def __init__(self, month: int, offset: int) -> None:
        self.month, self.offset = month, offset

    def read(self, rows: int) -> list[str] | None:
        first, self.offset = self.offset, min(self.offset + rows, mdays[self.month])
        return [
            f"{self.month:02}-{d}" for d in range(first + 1, self.offset + 1)
        ] or None


class Diary(ms.Sink[str]):
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def open(self, job: str, task: int) -> Page:
        return Page(self.folder / f"{job}-{task}.unfinished")

    def commit(self, job: str) -> None:
        for page in self.folder.glob(f"{job}-*.unfinished"):
            page.rename(page.with_suffix(".txt"))


class Page(ms.SinkWriter[str]):
    def __init__(self, path: Path) -> None:
        self.file = path.open("w")
        self.close = self.abandon = self.file.close

    def write(self, rows: list[str]) -> None:
        self.file.writelines(f"{row}\n" for row in rows)


if __name__ == "__main__":
    flow = ms.Flow("calendar")
    days = flow.read(Calendar()).filter(lambda day: day.endswith("-13"))
    with tempfile.TemporaryDirectory() as folder:
        days.write(Diary(folder))
        flow.run()
        pages = "".join(page.read_text() for page in Path(folder).glob("*.txt"))
    print("Every 13th of the year:", *sorted(pages.split()))
