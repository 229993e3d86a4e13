"""A source and a sink of your own; `millstream.connectors.base` explains them.

millstream run examples/custom_source_and_sink.py --on local --workers 2
"""

import tempfile
from pathlib import Path

import millstream as ms


class Week(ms.SourceReader[str]):
    offset = 0

    def __init__(self, week: int, offset: int) -> None:
        self.week, self.offset = week, offset

    def read(self, rows: int) -> list[str] | None:
        days, self.offset = range(self.offset, 7)[:rows], min(self.offset + rows, 7)
        return [f"{self.week}.{day + 1}" for day in days] or None


class Year(ms.Source[str]):
    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"week {week}", week) for week in range(1, 53)]

    def open(self, split: ms.Split, offset: int, config: ms.Config) -> Week:
        return Week(split.payload, offset)


class Page(ms.SinkWriter[str]):
    def __init__(self, path: Path) -> None:
        self.file = path.open("w")
        self.close = self.abandon = self.file.close

    def write(self, rows: list[str]) -> None:
        self.file.writelines(f"{row}\n" for row in rows)


class Diary(ms.Sink[str]):
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def open(self, job: str, task: int) -> Page:
        return Page(self.folder / f"{job}-{task}.unfinished")

    def commit(self, job: str) -> None:
        for page in self.folder.glob(f"{job}-*.unfinished"):
            page.rename(page.with_suffix(".txt"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        flow = ms.Flow("diary")
        flow.read(Year()).filter(lambda day: day.endswith(".7")).write(Diary(folder))
        flow.run()
        pages = Path(folder).glob("*.txt")
        print("Sundays written:", sum(p.read_text().count("\n") for p in pages))
