"""Files as frames in real flows: any number of workers reads what Polars reads."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import millstream as ms
from millstream.config import Config
from millstream.connectors.base import Split
from millstream.connectors.frame_files import ByteRange, LineFrames
from millstream.connectors.text_frame import TextFormat

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


ROWS = 60_000
TABLE = pl.DataFrame(
    {
        "id": range(ROWS),
        "word": [f'w{i % 97}, "é"' if i % 5 else None for i in range(ROWS)],
        "share": [i / 7 for i in range(ROWS)],
    }
)

Reading = "Callable[[ms.Flow, str], FileFrame]"


def result(read: Callable[[ms.Flow], Any], workers: int = 2, **settings: Any) -> Any:
    flow = ms.Flow("read")
    handle = read(flow).collect()
    flow.run(on="local", workers=workers, **settings)
    return handle.result()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of every format, which together hold the table."""
    folder = tmp_path_factory.mktemp("files")
    for number, part in enumerate([TABLE[:50_000], TABLE[50_000:]]):
        part.write_csv(folder / f"{number}.csv")
        part.write_ndjson(folder / f"{number}.jsonl")
        part.write_parquet(folder / f"{number}.parquet", row_group_size=9_000)
    return folder


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_any_number_of_workers_reads_what_polars_reads(
    folder: Path, kind: str, workers: int
) -> None:
    """No row is lost or doubled, and types and nulls are the same."""
    found = result(
        lambda flow: getattr(flow, f"read_{kind}")(f"{folder}/*.{kind}"), workers
    )

    assert_frame_equal(found.sort("id"), TABLE)


@pytest.mark.parametrize("workers", [1, 3])
def test_lines_are_those_of_the_file(folder: Path, workers: int) -> None:
    """Every line is a row of the column ``line``."""
    found = result(lambda flow: flow.read_lines(folder / "0.csv"), workers)

    lines = (folder / "0.csv").read_text().split("\n")[:-1]
    assert found.columns == ["line"]
    assert sorted(found["line"]) == sorted(lines)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_one_file_feeds_several_tasks(folder: Path, kind: str) -> None:
    """A file is cut into more splits than one."""
    flow = ms.Flow("read")
    getattr(flow, f"read_{kind}")(folder / f"0.{kind}")

    source: Any = flow.plan.nodes[0].spec
    assert len(source.source.splits(2)) > 1


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_new_reader_gives_the_rest_from_every_reported_offset(
    folder: Path, kind: str
) -> None:
    """What was returned before an offset and what comes from it is all, in order."""
    flow = ms.Flow("read")
    getattr(flow, f"read_{kind}")(folder / f"1.{kind}", name="rows")
    spec: Any = flow.plan.nodes[0].spec
    source = spec.source
    config = replace(Config(), frame_buffer=ms.fixed(2_500))
    for split in source.splits(1):
        whole = pl.concat(frames_from(source, split, 0, config))
        count = 0
        with closing(source.open(split, 0, config)) as reader:
            while (frame := reader.read(1)) is not None:
                count += frame.height
                rest = frames_from(source, split, reader.offset, config)
                assert_frame_equal(
                    pl.concat([whole[:0], *rest]), whole[count:], check_exact=True
                )
        assert count == whole.height


def frames_from(
    source: Any, split: Split, offset: int, config: Config
) -> list[pl.DataFrame]:
    frames = []
    with closing(source.open(split, offset, config)) as reader:
        while (frame := reader.read(config.frame_buffer.rows)) is not None:
            frames.append(frame)
    return frames


def test_batches_grow_to_the_rows_asked_for(folder: Path) -> None:
    """Short rows make blocks of many rows, within a bound of bytes."""
    flow = ms.Flow("read")
    flow.read_csv(folder / "0.csv")
    spec: Any = flow.plan.nodes[0].spec
    source = spec.source
    config = replace(Config(), frame_buffer=ms.fixed(4_000))
    (split, *_) = source.splits(1)
    heights = [frame.height for frame in frames_from(source, split, 0, config)]

    assert all(3_500 < height < 4_500 for height in heights[1:-1])
    assert len(heights) > 3


@pytest.mark.parametrize(
    "verb", ["read_csv", "read_parquet", "read_jsonl", "read_lines"]
)
def test_a_missing_path_fails_while_the_flow_is_built(
    tmp_path: Path, verb: str
) -> None:
    """The sentence names the verb, the path, and where it looked."""
    with pytest.raises(ms.UsageError, match=rf"{verb} found no file for .*none\.x"):
        getattr(ms.Flow("read"), verb)(tmp_path / "none.x")


@pytest.mark.parametrize(
    "verb", ["read_csv", "read_parquet", "read_jsonl", "read_lines"]
)
def test_no_path_is_refused(verb: str) -> None:
    """An empty list is a mistake, not an empty input."""
    with pytest.raises(ms.UsageError, match=f"{verb} got an empty list of paths"):
        getattr(ms.Flow("read"), verb)([])


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    """They cannot be cut at bytes, and must not be taken for text."""
    (tmp_path / "a.csv.gz").write_bytes(b"\x1f\x8b")

    with pytest.raises(ms.UsageError, match=r"compressed file .*a\.csv\.gz"):
        ms.Flow("read").read_csv(tmp_path)


def test_hidden_files_of_a_directory_are_not_read(tmp_path: Path) -> None:
    """What a killed job left behind is no input; a file named twice is read once."""
    for name in ("a.txt", "b/c.txt", "_SUCCESS", ".millstream-job/part.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")

    found = result(lambda flow: flow.read_lines([tmp_path, tmp_path / "a.txt"]))

    assert sorted(found["line"]) == ["a.txt", "b/c.txt"]


def test_empty_files_have_no_rows(tmp_path: Path) -> None:
    """They do not disturb the others either."""
    (tmp_path / "0.csv").write_bytes(b"")
    (tmp_path / "1.csv").write_bytes(b"a\n7\n")

    found = result(lambda flow: flow.read_csv(tmp_path))

    assert found.to_dicts() == [{"a": 7}]


def test_a_byte_order_mark_counts_only_at_the_start_of_a_file(tmp_path: Path) -> None:
    """Elsewhere it is a character of the text, also where a block begins."""
    (tmp_path / "a").write_text("\ufeffs,t\n\ufeffa,b\n\ufeffc,d\n")
    schema = {"s": pl.String, "t": pl.String}

    for bytes_ in (1, 7, 65_536):
        rows = result(
            lambda flow: flow.read_csv(tmp_path / "a", schema=schema),
            source_block_bytes=bytes_,
        )
        lines = result(
            lambda flow: flow.read_lines(tmp_path / "a"), source_block_bytes=bytes_
        )

        assert rows["s"].to_list() == ["\ufeffa", "\ufeffc"]
        assert lines["line"].to_list() == ["s,t", "\ufeffa,b", "\ufeffc,d"]


def test_a_file_that_shrank_is_noticed(tmp_path: Path) -> None:
    """The job fails instead of losing rows."""
    file = tmp_path / "a"
    file.write_text("abc\n")
    source = LineFrames([str(file)], TextFormat())
    split = Split("a", ByteRange(str(file), 0, 9, 9))

    with (
        closing(source.open(split, 0, Config())) as reader,
        pytest.raises(OSError, match=r"had 9 bytes .* now ends at byte 4"),
    ):
        reader.read(1)


def test_a_record_without_end_is_refused(tmp_path: Path) -> None:
    """A quote that is left open does not fill the memory."""
    file = tmp_path / "a"
    file.write_text('s,t\na,"' + "b\n" * 10_000)
    schema = {"s": pl.String, "t": pl.String}

    with pytest.raises(ms.OperatorError, match=r"record at byte 4 .* has no end"):
        result(
            lambda flow: flow.read_csv(file, schema=schema, multiline=True),
            packet_bytes_max=4096,
            source_block_bytes=512,
        )


def test_importing_the_package_loads_neither_polars_nor_arrow() -> None:
    """A flow of rows does not wait for them."""
    code = "import sys, millstream; print({'polars', 'pyarrow'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "set()"
