"""Options of ``millstream run``: from the command line, else from a TOML file.

The file is what RStream's ``streamrunner`` reads, in TOML::

    [run]
    on = "spark"
    workers = 4

    [set]
    buffer = "adaptive(1024, 50ms)"

    [[hosts]]
    address = "localhost"
    cores = 4

Millstream starts no process on other hosts: Spark does, so hosts other than this one
only count cores, and need a master.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.config import Config, configured
from millstream.errors import UsageError
from millstream.launch.options import LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["Asked", "Host", "launch_options", "parse_settings", "read_config"]

_THIS_HOST = frozenset({"localhost", "127.0.0.1", "::1"})
_KINDS = {"text": str, "a whole number": int, "a table": dict, "a list of tables": list}
_TOP = {"run": "a table", "set": "a table", "hosts": "a list of tables"}
_RUN = {
    "on": "text",
    "master": "text",
    "workers": "a whole number",
    "state": "text",
    "resume_from": "text",
}
_HOST = {"address": "text", "cores": "a whole number"}


@dataclass(frozen=True, slots=True)
class Host:
    """A machine and how many workers it has room for."""

    address: str
    cores: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line or a file asks for; None where it says nothing."""

    on: str | None = None
    master: str | None = None
    workers: int | None = None
    state: str | None = None
    resume_from: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    hosts: tuple[Host, ...] = ()


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Return ``name=value`` texts as settings, each checked."""
    settings = {}
    for text in texts:
        Config().with_setting(text)
        name, _, value = text.partition("=")
        settings[name.strip()] = value.strip()
    return settings


def read_config(path: Path) -> Asked:
    """Read a TOML file, and refuse what is not known."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"there is no configuration file {str(path)!r}"
        raise UsageError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"cannot read the configuration file {str(path)!r}: {error}"
        raise UsageError(msg) from None
    try:
        return _asked(document)
    except UsageError as error:
        msg = f"{path}: {error}"
        raise UsageError(msg) from None


def launch_options(
    line: Asked, file: Asked, *, insecure: bool, repeat_output: bool = False
) -> LaunchOptions:
    """Merge what was asked for; the command line wins over the file."""
    on = line.on or file.on
    master = line.master or file.master
    workers = line.workers or file.workers
    if master is not None and on not in {None, "spark"}:
        msg = (
            f"a master is for Spark, but the flow is to run on {on!r}; drop one of both"
        )
        raise UsageError(msg)
    if file.hosts:
        cores = sum(host.cores for host in file.hosts)
        workers = workers or cores
        if master is None:
            _check_this_host(file.hosts)
            master = f"local[{cores}]" if on in {None, "spark"} else None
    settings = {**file.settings, **line.settings}
    return LaunchOptions(
        on,
        None,
        master,
        workers,
        insecure,
        state=line.state or file.state,
        resume_from=line.resume_from or file.resume_from,
        repeat_output=repeat_output,
        settings=settings,
    )


def _check_this_host(hosts: Iterable[Host]) -> None:
    others = [host.address for host in hosts if host.address not in _THIS_HOST]
    if others:
        msg = (
            f"the hosts {', '.join(others)} are not this machine and no master is named; "
            "start Spark's standalone master and workers there, and name the master: "
            "--master spark://HOST:7077"
        )
        raise UsageError(msg)


def _asked(document: dict[str, Any]) -> Asked:
    _check(document, _TOP, "at the top")
    run = document.get("run", {})
    _check(run, _RUN, "in [run]")
    hosts = document.get("hosts", [])
    settings = document.get("set", {})
    configured(Config(), settings)
    asked = Asked(**run, settings=settings, hosts=tuple(_host(host) for host in hosts))
    if asked.workers is not None and asked.workers < 1:
        msg = f"a flow needs at least 1 worker, got workers = {asked.workers} in [run]"
        raise UsageError(msg)
    return asked


def _host(table: object) -> Host:
    if not isinstance(table, dict):
        msg = f"an entry of [[hosts]] is a table with address and cores, got {table!r}"
        raise UsageError(msg)
    _check(table, _HOST, "in [[hosts]]")
    host = Host(table.get("address", ""), table.get("cores", 1))
    if not host.address or host.cores < 1:
        msg = (
            "a host in [[hosts]] has an address and at least 1 core, got "
            f"address = {host.address!r} and cores = {host.cores}"
        )
        raise UsageError(msg)
    return host


def _check(table: Mapping[str, Any], known: Mapping[str, str], where: str) -> None:
    """Refuse a key that is not known, and a value of another type."""
    for key, value in table.items():
        if key not in known:
            guess = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {guess[0]!r}?" if guess else ""
            msg = f"there is no key {key!r} {where}{hint} (keys: {', '.join(known)})"
            raise UsageError(msg)
        if not isinstance(value, _KINDS[known[key]]) or isinstance(value, bool):
            msg = f"{key!r} {where} takes {known[key]}, got {value!r}"
            raise UsageError(msg)
