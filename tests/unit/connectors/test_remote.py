"""Files behind URLs: found, read in parts, and every failure in one sentence."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.support.stores import STORES, serving

import millstream as ms
from millstream.connectors.paths import file_size, found_files, opened_file
from millstream.connectors.remote import found_urls

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stores import Store

ROWS = 60_000
TABLE = pl.DataFrame(
    {"id": range(ROWS), "word": [f'w{i % 97}, "é"' for i in range(ROWS)]}
)
VERBS = {"csv": "write_csv", "jsonl": "write_ndjson", "parquet": "write_parquet"}


def put_table(store: Store, folder: Path, kind: str) -> str:
    """Write the table as two files; return the pattern that names them."""
    for number, part in enumerate([TABLE[:50_000], TABLE[50_000:]]):
        path = folder / f"{number}.{kind}"
        getattr(part, VERBS[kind])(path)
        store.put(f"in/{path.name}", path.read_bytes())
    return f"{store.url}/in/*.{kind}"


@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.parametrize("kind", VERBS)
def test_frames_are_read_from_a_store_and_written_to_it(
    store: Store, tmp_path: Path, kind: str
) -> None:
    """Splits, types and parts are those of local files."""
    pattern = put_table(store, tmp_path, kind)
    flow = ms.Flow("store")
    frame = getattr(flow, f"read_{kind}")(pattern)
    getattr(frame, f"write_{kind}")(f"{store.url}/out")
    flow.run(on="local", workers=3)
    again = ms.Flow("again")
    rows = getattr(again, f"read_{kind}")(f"{store.url}/out").collect()
    again.run(on="local", workers=2)

    assert_frame_equal(rows.result().sort("id"), TABLE)
    assert set(store.found("out")) == {
        "_SUCCESS",
        *(f"part-write_{kind}-0000{task}.{kind}" for task in range(3)),
    }


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_rows_are_read_from_a_store_and_written_to_it(store: Store) -> None:
    """Text comes in and goes out as lines, JSON rows as JSON lines."""
    store.put("in/a.txt", "one\ntwo é\n".encode())
    flow = ms.Flow("store")
    lines = flow.read_text(f"{store.url}/in")
    lines.write_text(f"{store.url}/text")
    lines.map(len).write_jsonl(f"{store.url}/json")
    flow.run(on="local", workers=1)

    assert store.found("text")["part-write_text-00000.txt"] == "one\ntwo é\n".encode()
    assert store.found("json")["part-write_jsonl-00000.jsonl"] == b"3\n5\n"


@pytest.mark.slow
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_workers_in_other_processes_reach_the_store(
    store: Store, tmp_path: Path
) -> None:
    """The plan carries URLs, and each worker opens its own connections."""
    pattern = put_table(store, tmp_path, "csv")
    flow = ms.Flow("store")
    frame = flow.read_csv(pattern)
    frame.write_parquet(f"{store.url}/out")
    rows = frame.collect()
    flow.run(on="processes", workers=2)

    assert_frame_equal(rows.result().sort("id"), TABLE)
    assert len(store.found("out")) == 3


@pytest.mark.parametrize("kind", VERBS)
def test_files_of_a_web_server_are_read_in_parts(tmp_path: Path, kind: str) -> None:
    """A server that serves parts of files is enough."""
    path = tmp_path / f"a.{kind}"
    getattr(TABLE, VERBS[kind])(path)
    with serving(tmp_path) as url:
        flow = ms.Flow("web")
        rows = getattr(flow, f"read_{kind}")(f"{url}/a.{kind}").collect()
        flow.run(on="local", workers=2)

    assert_frame_equal(rows.result().sort("id"), TABLE)


def test_a_web_server_without_parts_is_refused(tmp_path: Path) -> None:
    """The sentence says what to do instead."""
    (tmp_path / "a.csv").write_text("n\n" + "1\n" * 3_000_000)
    with serving(tmp_path, ranges=False) as url:
        flow = ms.Flow("web")
        flow.read_csv(f"{url}/a.csv").collect()
        with pytest.raises(
            ms.OperatorError, match=r"a\.csv does not serve parts of files; copy it"
        ):
            flow.run(on="local", workers=2)


def test_an_empty_file_of_a_web_server_has_no_rows(tmp_path: Path) -> None:
    """There is nothing to serve parts of."""
    (tmp_path / "a.txt").touch()
    with serving(tmp_path, ranges=False) as url:
        flow = ms.Flow("web")
        rows = flow.read_lines(f"{url}/a.txt").collect()
        flow.run(on="local", workers=1)

        with closing(opened_file(f"{url}/a.txt")) as file:
            assert file.read() == b""
    assert rows.result().height == 0


def test_a_web_address_without_a_file_is_refused(tmp_path: Path) -> None:
    """It fails while the flow is built."""
    with (
        serving(tmp_path) as url,
        pytest.raises(
            ms.UsageError, match=r"found no file for 'http://.*/none\.csv'; check"
        ),
    ):
        ms.Flow("web").read_csv(f"{url}/none.csv")


def test_a_url_of_a_local_file_is_its_path(tmp_path: Path) -> None:
    """So it is read as fast."""
    (tmp_path / "a.txt").write_text("x\n")

    assert found_files("read_text", f"file://{tmp_path}/*.txt") == [
        str(tmp_path / "a.txt")
    ]


def test_a_local_url_is_written_as_a_directory(tmp_path: Path) -> None:
    """With the renames of a local directory."""
    flow = ms.Flow("local")
    flow.from_iterable(["x"]).write_text(f"file://{tmp_path}/out")
    flow.run(on="local", workers=1)

    assert (tmp_path / "out" / "part-write_text-00000.txt").read_text() == "x\n"


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_directories_and_globs_name_files_as_they_do_locally(store: Store) -> None:
    """Hidden files of a directory are no input, and each file is read once."""
    for name in ("a.txt", "b/c.txt", "b/d.csv", "_SUCCESS", ".millstream-j/part.txt"):
        store.put(f"in/{name}", b"x\n")

    def names(*patterns: str) -> list[str]:
        found = found_files("read_text", [f"{store.url}/in{one}" for one in patterns])
        return [url.removeprefix(f"{store.url}/in/") for url in found]

    assert names("") == names("/") == ["a.txt", "b/c.txt", "b/d.csv"]
    assert names("/**/*.txt") == ["a.txt", "b/c.txt"]
    assert names("/b/*", "/b/d.csv") == ["b/c.txt", "b/d.csv"]
    with pytest.raises(
        ms.UsageError, match=r"found no file for '.*/in/\*\.zip'; check"
    ):
        names("/*.zip")


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_a_file_of_a_store_has_a_size_and_is_read_from_any_byte(store: Store) -> None:
    """Splits need both."""
    url = store.put("a", bytes(range(200)))

    assert file_size(url) == 200
    with closing(opened_file(url)) as file:
        assert file.seek(100) == file.tell() == 100
        assert file.read(3) == bytes([100, 101, 102])
        assert len(file.read()) == 97


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_a_file_that_vanishes_from_a_store_is_named(store: Store) -> None:
    """A cached listing does not hide it."""
    url = store.put("in/a", b"x\n")
    assert found_files("read_text", f"{store.url}/in") == [url]
    assert file_size(url) == 2
    store.system.rm_file(url)

    for look in (file_size, opened_file):
        with pytest.raises(
            FileNotFoundError, match="was there when the flow was built"
        ):
            look(url)


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_a_file_that_shrinks_in_a_store_is_reported(store: Store) -> None:
    """A shorter file must not look like the end of the input."""
    url = store.put("a.csv", b"n\n" + b"1\n" * 100)
    flow = ms.Flow("store")
    flow.read_csv(url)
    spec: Any = flow.plan.nodes[0].spec
    (split,) = spec.source.splits(1)
    store.put("a.csv", b"n\n" + b"1\n" * 10)

    with (
        closing(spec.source.open(split, 0, ms.Config())) as reader,
        pytest.raises(OSError, match=r"had 202 bytes .* and now ends at byte 22"),
    ):
        reader.read(1)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "gs://bucket/a",
            r"gs://bucket/a needs a package .*install gcsfs.*the workers",
        ),
        (
            "nothing://a",
            r"nothing://a is no URL .*Protocol not known.*check its scheme",
        ),
        ("zip://a::s3://b/c.zip", "chains two file systems; name a URL of one"),
        ("ftp://me:secret@127.0.0.1:1/a", "cannot reach ftp://127.0.0.1:1/a"),
    ],
)
def test_a_url_that_cannot_be_opened_fails_while_the_flow_is_built(
    url: str, message: str
) -> None:
    """Reading and writing say the same; no password is shown."""
    with pytest.raises(ms.UsageError, match=message) as reading:
        ms.Flow("url").read_text(url)
    with pytest.raises(ms.UsageError, match=message) as writing:
        ms.Flow("url").from_iterable(["a"]).write_text(url)

    assert "secret" not in f"{reading.value} {writing.value}"


@pytest.mark.slow
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_bucket_that_is_not_there_is_not_made(store: Store) -> None:
    """A typing mistake must not cost money."""
    flow = ms.Flow("bucket")
    flow.from_iterable(["a"]).write_text("s3://no-such-bucket/out")

    with pytest.raises(ms.OperatorError, match=r"cannot write to s3://no-such-bucket"):
        flow.run(on="local", workers=1)
    with pytest.raises(ms.UsageError, match="bucket does not exist"):
        ms.Flow("bucket").read_text("s3://no-such-bucket/a.txt")


def test_the_host_of_a_pattern_is_kept_in_the_urls_of_its_files(tmp_path: Path) -> None:
    """A worker must find what the driver found."""
    (tmp_path / "a.txt").write_text("x\n")
    with serving(tmp_path) as url:
        assert found_urls("read_text", f"{url}/a.txt") == [f"{url}/a.txt"]
