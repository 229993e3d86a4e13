"""Files that are not what they should be: each is one sentence that names the file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tempfile
import zipfile
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms
from millstream.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINE_VERBS = ["read_text", "read_lines", "read_csv", "read_jsonl"]
VERBS = [*LINE_VERBS, "read_parquet"]
TABLE = pl.DataFrame({"n": [1, 2, 3], "s": ["a", "b", "é"]})


def good_content(verb: str, repeat: int = 1) -> bytes:
    """Return the bytes of a file that the verb reads."""
    table = pl.concat([TABLE] * repeat)
    out = io.BytesIO()
    if verb == "read_parquet":
        table.write_parquet(out, row_group_size=3)
    elif verb == "read_jsonl":
        table.write_ndjson(out)
    else:
        table.write_csv(out)
    return out.getvalue()


def zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.csv", content)
    return out.getvalue()


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "compressed with gzip": gzip.compress,
    "compressed with bzip2": bz2.compress,
    "compressed with xz": lzma.compress,
    "a zip archive": zipped,
}


def source_of(verb: str, path: Path, **options: Any) -> Any:
    """Return the source that a verb makes."""
    flow = ms.Flow("bad")
    getattr(flow, verb)(path, **options)
    spec: Any = flow.plan.nodes[0].spec
    return spec.source


def run(verb: str, path: Path, **settings: Any) -> Any:
    """Return what reading the files in a flow gives."""
    flow = ms.Flow("bad")
    result = getattr(flow, verb)(path).collect()
    flow.run(on="local", workers=2, **settings)
    return result.result()


def rows_of(verb: str, path: Path) -> list[Any]:
    """Return the rows of a file, whatever they are, in their order."""
    source = source_of(verb, path)
    return read(source, source.splits(1), Config())


def read(source: Any, splits: list[Any], config: Config) -> list[Any]:
    rows: list[Any] = []
    for split in splits:
        with closing(source.open(split, 0, config)) as reader:
            while (batch := reader.read(1024)) is not None:
                rows += batch if isinstance(batch, list) else batch.rows()
    return rows


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_directory_names_no_file(tmp_path: Path, verb: str) -> None:
    """Nor do hidden files in it."""
    (tmp_path / "_SUCCESS").touch()

    with pytest.raises(ms.UsageError, match=rf"{verb} found no file for '{tmp_path}'"):
        source_of(verb, tmp_path)


@pytest.mark.parametrize("verb", VERBS)
def test_a_directory_that_took_the_place_of_a_file_is_named(
    tmp_path: Path, verb: str
) -> None:
    """Between planning and reading anything can happen."""
    path = tmp_path / "a"
    path.write_bytes(good_content(verb))
    source = source_of(verb, path)
    split = source.splits(1)[0]
    path.unlink()
    path.mkdir()

    with pytest.raises(IsADirectoryError, match=r"cannot read .*/a, .*Is a directory"):
        source.open(split, 0, Config())


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run as nobody where the tests run as root, whom no permission stops."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a directory that every user may look into."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_without_permission_fails_while_the_flow_is_built(
    open_folder: Path, verb: str
) -> None:
    """The sentence says who needs it."""
    path = open_folder / "a"
    path.write_bytes(good_content(verb))
    path.chmod(0)

    with (
        without_privileges(),
        pytest.raises(
            ms.UsageError, match=rf"{verb} has no permission to read .*/a; give it"
        ),
    ):
        source_of(verb, path)


@pytest.mark.parametrize("verb", VERBS)
def test_a_permission_that_is_taken_away_is_named(open_folder: Path, verb: str) -> None:
    """A worker may run as another user than the driver."""
    path = open_folder / "a"
    path.write_bytes(good_content(verb))
    source = source_of(verb, path)
    split = source.splits(1)[0]
    path.chmod(0)

    with (
        without_privileges(),
        pytest.raises(PermissionError, match=r"cannot read .*/a, .*Permission denied"),
    ):
        source.open(split, 0, Config())


@pytest.mark.parametrize("verb", LINE_VERBS)
def test_a_file_that_shrank_is_no_shorter_input(tmp_path: Path, verb: str) -> None:
    """The sentence has both lengths."""
    path = tmp_path / "a"
    path.write_bytes(good_content(verb, 100))
    source = source_of(verb, path)
    splits = source.splits(1)
    size = path.stat().st_size
    os.truncate(path, size - 7)

    with pytest.raises(OSError, match=f"had {size} bytes .* ends at byte {size - 7};"):
        read(source, splits, Config())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n": ["x"], "s": ["y"]}, r"column 'n' was Int64 and is String"),
        ({"n": [1]}, r"column 's' was String and is None"),
        (
            {"n": [1, 2, 3], "s": ["a", "b", "c"]},
            r"it has 1 row groups and no number 1",
        ),
        ({"n": range(5), "s": list("abcde")}, r"row group 1 had 3 rows and has 2"),
    ],
)
def test_a_parquet_file_that_changed_is_named(
    tmp_path: Path, other: dict[str, Any], message: str
) -> None:
    """Offsets of a snapshot would point into another file."""
    path = tmp_path / "a.parquet"
    path.write_bytes(good_content("read_parquet", 2))
    source = source_of("read_parquet", path)
    split = source.splits(1)[1]
    pl.DataFrame(other).write_parquet(path, row_group_size=3)

    with pytest.raises(ValueError, match=rf"a\.parquet has changed .*\({message}\); a"):
        source.open(split, 0, Config())


@pytest.mark.parametrize("verb", ["read_csv", "read_jsonl"])
@pytest.mark.parametrize("what", COMPRESSED)
def test_a_compressed_file_under_another_name_fails_while_the_flow_is_built(
    tmp_path: Path, verb: str, what: str
) -> None:
    """It is not taken for malformed rows."""
    path = tmp_path / "a.csv"
    path.write_bytes(COMPRESSED[what](good_content(verb)))

    with pytest.raises(ms.UsageError, match=rf"a\.csv is {what}, .*; decompress it"):
        source_of(verb, path)


@pytest.mark.parametrize("verb", LINE_VERBS)
@pytest.mark.parametrize("what", COMPRESSED)
def test_a_compressed_file_beside_good_ones_fails_the_job(
    tmp_path: Path, verb: str, what: str
) -> None:
    """The first file is looked at while the flow is built, the others when read."""
    content = good_content(verb)
    (tmp_path / "0.csv").write_bytes(content)
    (tmp_path / "1.csv").write_bytes(COMPRESSED[what](content))

    with pytest.raises(ms.OperatorError, match=rf"1\.csv is {what}, .*; decompress it"):
        run(verb, tmp_path)


@pytest.mark.parametrize("verb", LINE_VERBS)
@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_a_compressed_name_is_refused(tmp_path: Path, verb: str, suffix: str) -> None:
    """Before anybody opens the file."""
    (tmp_path / f"a.csv.{suffix}").touch()

    with pytest.raises(
        ms.UsageError, match=rf"the compressed file .*a\.csv\.{suffix};"
    ):
        source_of(verb, tmp_path)


@pytest.mark.parametrize("verb", ["read_csv", "read_jsonl"])
def test_parquet_is_no_file_of_lines(tmp_path: Path, verb: str) -> None:
    """The sentence names the verb that reads it."""
    (tmp_path / "a.csv").write_bytes(good_content("read_parquet"))

    with pytest.raises(ms.UsageError, match=r"is a Parquet file; .* with read_parquet"):
        source_of(verb, tmp_path)


def test_a_header_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """UTF-16 of a spreadsheet is the usual case."""
    (tmp_path / "a.csv").write_bytes("n,s\n1,a\n".encode("utf-16"))

    with pytest.raises(ms.UsageError, match=r"header of .*a\.csv is not UTF-8 .*conv"):
        source_of("read_csv", tmp_path)


@pytest.mark.parametrize("verb", ["read_text", "read_lines", "read_csv", "read_jsonl"])
def test_the_way_a_text_file_ends_its_lines_does_not_matter(
    tmp_path: Path, verb: str
) -> None:
    """Nor a byte order mark at its start, nor a missing newline at its end."""
    plain = good_content(verb)
    variants = {
        "plain": plain,
        "mark": b"\xef\xbb\xbf" + plain,
        "crlf": plain.replace(b"\n", b"\r\n"),
        "cut": plain.removesuffix(b"\n"),
        "all": b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
    }
    for name, content in variants.items():
        (tmp_path / name).write_bytes(content)

    found = {name: rows_of(verb, tmp_path / name) for name in variants}
    assert len(found["plain"]) in (3, 4)
    assert all(rows == found["plain"] for rows in found.values()), found


@pytest.mark.parametrize("verb", LINE_VERBS)
def test_a_line_longer_than_the_limit_fails_the_job(tmp_path: Path, verb: str) -> None:
    """Memory stays bounded, whatever is in a file."""
    path = tmp_path / "a"
    path.write_bytes(good_content(verb) + b"x" * 3_000_000)
    limits = replace(Config(), packet_bytes_max=1_000_000)
    source = source_of(verb, path)
    splits = source.splits(1)
    message = r"at byte \d+ of .*/a has no end within packet_bytes_max=1000000 bytes"

    with pytest.raises(ValueError, match=message):
        read(source, splits, limits)


def test_a_long_line_within_the_limit_is_read(tmp_path: Path) -> None:
    """It takes several blocks."""
    (tmp_path / "a").write_bytes(b"x" * 3_000_000 + b"\ny\n")

    assert rows_of("read_text", tmp_path / "a") == ["x" * 3_000_000, "y"]
    assert rows_of("read_lines", tmp_path / "a") == [("x" * 3_000_000,), ("y",)]
