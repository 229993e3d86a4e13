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


class Pen(ms.SinkWriter[str]):
    text = ""

    def write(self, rows: list[str]) -> None:
        self.text += "".join(f"{row}\n" for row in rows)

    def seal(self, epoch: int) -> str:
        text, self.text = self.text, ""
        return text  # a few lines; large output goes to a file, and its name here


class Diary(ms.Sink[str]):
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def open(self, job: str, task: int) -> Pen:
        return Pen()

    def commit(self, job: str, epoch: int, transactions: list[str]) -> None:
        (self.folder / f"{epoch}.txt").write_text("".join(transactions))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        flow = ms.Flow("diary")
        flow.read(Year()).filter(lambda day: day.endswith(".7")).write(Diary(folder))
        flow.run()
        pages = [page.read_text() for page in Path(folder).glob("*.txt")]
        print("Sundays written:", "".join(pages).count("\n"))
