"""Options from a TOML file and from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.configfile import (
    Asked,
    Host,
    launch_options,
    parse_settings,
    read_config,
)
from millstream.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_file_gives_every_option(tmp_path: Path) -> None:
    """All three tables are read."""
    path = written(
        tmp_path,
        """
        [run]
        on = "spark"
        master = "spark://here:7077"
        workers = 3
        state = "snapshots"
        resume_from = "savepoint"
        [set]
        buffer = "adaptive(1024, 50ms)"
        shard_count = 64
        [[hosts]]
        address = "node1"
        cores = 4
        [[hosts]]
        address = "node2"
        """,
    )

    assert read_config(path) == Asked(
        "spark",
        "spark://here:7077",
        3,
        "snapshots",
        "savepoint",
        {"buffer": "adaptive(1024, 50ms)", "shard_count": 64},
        (Host("node1", 4), Host("node2", 1)),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rum]", r"there is no key 'rum' at the top; did you mean 'run'\?"),
        ("[run]\nworker = 2", r"'worker' in \[run\]; did you mean 'workers'\?"),
        ("[set]\nbufer = 'fixed(1)'", "did you mean 'buffer'"),
        ("[set]\nbuffer = 'sometimes'", "cannot read the buffer policy 'sometimes'"),
        ("[run]\nworkers = 'two'", r"'workers' in \[run\] takes a whole number, got"),
        ("[run]\nworkers = 0", "at least 1 worker"),
        ("[run]\nworkers = true", "takes a whole number, got True"),
        ("[[hosts]]\ncores = 2", "has an address"),
        ("[[hosts]]\naddress = 'a'\ncores = 0", "at least 1 core"),
        ("hosts = ['a']", r"\[\[hosts\]\] is a table"),
        ("[run", "cannot read the configuration file"),
    ],
)
def test_mistake_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    """The message has the file, the key and what was expected."""
    path = written(tmp_path, text)

    with pytest.raises(UsageError, match=message) as caught:
        read_config(path)

    assert str(path) in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A wrong path is the user's mistake, not a crash."""
    with pytest.raises(UsageError, match="there is no configuration file"):
        read_config(tmp_path / "absent.toml")


def test_command_line_wins_over_the_file() -> None:
    """Each option on its own; what only the file says stays."""
    line = Asked(on="local", settings={"buffer": "fixed(1)"})
    file = Asked(
        on="processes", workers=4, settings={"buffer": "fixed(2)", "lease_ms": 9}
    )

    options = launch_options(line, file, insecure=False)

    assert (options.on, options.workers) == ("local", 4)
    assert options.settings == {"buffer": "fixed(1)", "lease_ms": 9}


def test_workers_are_the_cores_of_all_hosts() -> None:
    """RStream's list of hosts and cores says how wide to run."""
    file = Asked(master="spark://a:7077", hosts=(Host("a", 4), Host("b", 2)))

    assert launch_options(Asked(), file, insecure=False).workers == 6
    assert launch_options(Asked(workers=3), file, insecure=False).workers == 3


def test_this_host_alone_becomes_a_local_master() -> None:
    """Nothing needs to be started beforehand."""
    file = Asked(hosts=(Host("localhost", 3), Host("127.0.0.1", 1)))

    options = launch_options(Asked(), file, insecure=False)

    assert (options.master, options.workers) == ("local[4]", 4)


def test_this_host_alone_needs_no_master_without_spark() -> None:
    """Processes know nothing of masters."""
    file = Asked(on="processes", hosts=(Host("localhost", 3),))

    options = launch_options(Asked(), file, insecure=False)

    assert (options.on, options.master, options.workers) == ("processes", None, 3)


def test_other_hosts_need_a_master() -> None:
    """Millstream starts nothing there, Spark does."""
    file = Asked(hosts=(Host("node1", 4), Host("localhost", 4)))

    with pytest.raises(UsageError, match=r"hosts node1 are not this machine.*--master"):
        launch_options(Asked(), file, insecure=False)


def test_a_master_without_spark_is_refused() -> None:
    """One of the two options would be ignored without a word."""
    with pytest.raises(UsageError, match="a master is for Spark"):
        launch_options(Asked(on="local", master="local[2]"), Asked(), insecure=False)


def test_blanks_around_a_setting_do_not_matter() -> None:
    """Name and value are stripped."""
    assert parse_settings(["buffer = fixed(8)"]) == {"buffer": "fixed(8)"}


@pytest.mark.parametrize("text", ["buffer", "buffr=fixed(8)", "lease_ms=soon"])
def test_wrong_setting_is_refused_before_anything_runs(text: str) -> None:
    """The job file is not even opened."""
    with pytest.raises(UsageError):
        parse_settings([text])
