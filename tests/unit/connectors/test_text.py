"""TextSource: which files it finds, how it cuts them, what it makes of bytes."""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.config import Config
from millstream.connectors.text import TextSource
from millstream.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024


def lines_of(source: TextSource, block_bytes: int = 65_536) -> list[str]:
    config = replace(Config(), source_block_bytes=block_bytes)
    lines = []
    for split in source.splits(2):
        with closing(source.open(split, 0, config)) as reader:
            while (batch := reader.read(1024)) is not None:
                lines += batch
    return lines


def written(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\n\r\nb", ["a", "", "b"]),
        (b"a\rb\r\r\nc\r", ["a\rb\r", "c\r"]),
        ("a\x0bb\u2028c\x85d\n".encode(), ["a\x0bb\u2028c\x85d"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 2, 5, 65_536])
def test_only_a_newline_ends_a_line(
    tmp_path: Path, content: bytes, lines: list[str], block_bytes: int
) -> None:
    """Carriage returns go only before a newline; a byte order mark only at byte 0."""
    file = written(tmp_path / "a.txt", content)

    assert lines_of(TextSource(file), block_bytes) == lines


def test_a_line_of_many_blocks_is_read_in_turns(tmp_path: Path) -> None:
    """A reader inside a long line says that nothing is there yet."""
    source = TextSource(written(tmp_path / "a.txt", "x" * 1000 + "\nend"))
    config = replace(Config(), source_block_bytes=10)

    with closing(source.open(source.splits(1)[0], 0, config)) as reader:
        assert reader.read(1) == []
        assert reader.offset == 0
    assert lines_of(source, 10) == ["x" * 1000, "end"]


def test_big_files_are_cut_and_every_line_is_read_once(tmp_path: Path) -> None:
    """One big file keeps all tasks busy, in parts of about a mebibyte."""
    content = "".join(f"{number:099}\n" for number in range(30_000))
    file = written(tmp_path / "a.txt", content)
    source = TextSource(file)
    parts = [split.payload for split in source.splits(4)]

    assert [part.end - part.start for part in parts] == [len(content) // 3] * 3
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert lines_of(source) == content.split("\n")[:-1]


def test_a_split_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    """Splits are planned in the driver and read elsewhere."""
    source = TextSource(written(tmp_path / "a.txt", "a\nb\n"))
    source, split = pickle.loads(pickle.dumps((source, source.splits(1)[0])))

    with closing(source.open(split, 2, Config())) as reader:
        assert reader.read(1) == ["b"]


def test_directories_globs_and_lists_name_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden files and those of a job's own bookkeeping are not data."""
    for name in ("b/2", "b/1", "a", "_SUCCESS", ".hidden", "_tmp/x", "c/.git/x"):
        written(tmp_path / f"{name}.txt", name)
    written(tmp_path / "b" / "3.csv", "b/3")
    monkeypatch.chdir(tmp_path)

    assert lines_of(TextSource(tmp_path)) == ["a", "b/1", "b/2", "b/3"]
    assert lines_of(TextSource("b/*.txt")) == ["b/1", "b/2"]
    assert lines_of(TextSource("**/[0-9].*")) == ["b/1", "b/2", "b/3"]
    assert lines_of(TextSource(["b/2.txt", "a.txt", "b/*.txt"])) == ["b/2", "a", "b/1"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    """What exists is meant literally."""
    written(tmp_path / "a1.txt", "glob")
    file = written(tmp_path / "a[1].txt", "literal")

    assert lines_of(TextSource(file)) == ["literal"]


def test_a_relative_path_is_bound_where_the_flow_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have another working directory than the driver."""
    written(tmp_path / "a.txt", "here")
    monkeypatch.chdir(tmp_path)
    source = TextSource("a.txt")
    monkeypatch.chdir("/")

    assert lines_of(source) == ["here"]


@pytest.mark.parametrize("pattern", ["b/*.txt", "a.txt", "b/c/d.txt", "b/**"])
def test_a_pattern_without_files_is_refused(tmp_path: Path, pattern: str) -> None:
    """The error names the pattern and the deepest directory that is there."""
    (tmp_path / "b").mkdir()
    looked_in = tmp_path / "b" if pattern.startswith("b") else tmp_path

    with pytest.raises(UsageError) as caught:
        TextSource(tmp_path / pattern)

    assert f"no file for '{tmp_path / pattern}'" in str(caught.value)
    assert f"(looked in {looked_in})" in str(caught.value)


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        ([], {}, "empty list of paths"),
        (".", {"encoding": "utf-16"}, "cannot cut utf-16 files into lines"),
        (".", {"encoding": "cp037"}, "cannot cut cp037 files into lines"),
        (".", {"encoding": "utf-9"}, "unknown encoding: utf-9"),
        (
            ".",
            {"errors": "shrug"},
            "errors can be strict, replace or ignore, got 'shrug'",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(
    paths: Any, options: dict[str, str], message: str
) -> None:
    """The mistake shows while the flow is being built."""
    with pytest.raises(UsageError, match=message):
        TextSource(paths, **options)


def test_other_encodings_and_error_handlers_are_used(tmp_path: Path) -> None:
    """A byte order mark is one only in UTF-8."""
    file = written(tmp_path / "a.txt", b"\xef\xbb\xbf\xe9\n\xe9")

    assert lines_of(TextSource(file, encoding="latin-1")) == ["ï»¿é", "é"]
    assert lines_of(TextSource(file, errors="replace")) == ["\ufffd", "\ufffd"]
    assert lines_of(TextSource(file, encoding="utf-8-sig", errors="ignore")) == [""]


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("block_bytes", [3, 65_536])
def test_a_wrong_byte_is_reported_with_its_place(
    tmp_path: Path, bom: bytes, block_bytes: int
) -> None:
    """The user can look at that byte with any tool."""
    file = written(tmp_path / "a.txt", bom + b"good\nbad\xff\n")
    message = rf"byte {len(bom) + 8} of .*a\.txt is not utf-8 \(invalid start byte\)"

    with pytest.raises(ValueError, match=message):
        lines_of(TextSource(file), block_bytes)


def test_a_file_that_vanished_or_shrank_is_reported(tmp_path: Path) -> None:
    """A shorter file must not look like the end of the input."""
    file = written(tmp_path / "a.txt", "one\ntwo\n")
    source = TextSource(file)
    split = source.splits(1)[0]

    file.write_text("one\n")
    message = r"had 8 bytes .* now ends at byte 4"
    with closing(source.open(split, 0, Config())) as reader:
        assert reader.read(1) == ["one"]
        with pytest.raises(OSError, match=message):
            reader.read(1)

    file.unlink()
    with pytest.raises(FileNotFoundError, match="was there when the flow was built"):
        source.open(split, 0, Config())
    with pytest.raises(FileNotFoundError, match="No such file"):
        source.splits(1)
