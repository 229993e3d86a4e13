"""What a launcher does to the machine it is on: look for Java, pack, wait for exits.

It does not know Spark; `launch.spark` uses it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import LaunchError
from millstream.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Trust = Callable[[str], bool]
    """Whether modules may be loaded from a path of the machine that it is called on."""

__all__ = [
    "PACKAGE",
    "address_towards",
    "await_exit",
    "check_java",
    "environment",
    "is_loopback",
    "path_guard",
    "python_problem",
    "share_of_cores",
    "zipped_package",
]

PACKAGE = Path(__file__).parent.parent
"""Where Millstream is installed."""
_WAIT_S = 0.02
_KILLED_S = 5.0
"""Spark kills the Python process of a cancelled task after two seconds."""


def address_towards(host: str) -> str:
    """Return the address by which a host knows this machine; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))
        return str(probe.getsockname()[0])


def share_of_cores(workers: int) -> int:
    """Return how many cores each of the workers on this machine may keep busy."""
    return max(1, (os.cpu_count() or 1) // workers)


def check_java() -> None:
    """Raise `LaunchError` where Spark would find no Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        place = f"in JAVA_HOME={home}" if home else "on the PATH"
        msg = (
            f"Spark needs Java, and there is none {place}; install a Java 17 runtime "
            "(or newer) and set JAVA_HOME, or run on='local'"
        )
        raise LaunchError(msg)


def python_problem(python: str) -> str:
    """Return why Spark cannot run a worker with a Python of this machine, or ``""``."""
    found = shutil.which(python)
    if found is None:
        return f"there is no program {python!r}"
    if found == sys.executable:
        return ""
    look = (
        "import importlib.util, sys; sys.exit(not importlib.util.find_spec('pyarrow'))"
    )
    command = [found, "-c", look]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - above
    return "No module named 'pyarrow'" if done.returncode else ""


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables that Spark reads when it starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


def zipped_package(directory: Path) -> Path:
    """Write Millstream as an archive whose name changes with its contents."""
    root = PACKAGE
    files = {path.relative_to(root.parent): path for path in sorted(root.rglob("*.py"))}
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(f"{name}\0".encode() + path.read_bytes())
    archive = directory / f"millstream-{digest.hexdigest()[:16]}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for name, path in files.items():
                file.write(path, name)
    return archive


def await_exit(pids: Iterable[int | None]) -> None:
    """Wait until processes that Spark is about to kill are gone."""
    clock, pause = SystemClock(), threading.Event()
    deadline_ns = clock.monotonic_ns() + int(_KILLED_S * 1e9)
    for pid in pids:
        while pid and _is_running(pid) and clock.monotonic_ns() < deadline_ns:
            pause.wait(_WAIT_S)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def path_guard(*, trusts_all: bool) -> Trust:
    """Return a function, pickled by value, that trusts a path which is there for good.

    What the driver has in ``/tmp``, another user of an executor's machine may have made
    there.  A path in which everybody may write is not trusted, nor one below such a
    directory unless root or we have made what lies in there.

    Parameters
    ----------
    trusts_all
        Whether the machine is the driver's own, which uses these paths itself.
    """

    def can_trust(path: str) -> bool:
        import os  # noqa: PLC0415 - pickled by value
        import stat  # noqa: PLC0415

        path, made_by = os.path.realpath(path), -1
        while not trusts_all:
            try:
                found = os.stat(path)  # noqa: PTH116 - needs no more imports
            except OSError:
                return False
            is_open = found.st_mode & stat.S_IWOTH
            is_ours = found.st_mode & stat.S_ISVTX and made_by in (0, os.geteuid())
            if is_open and not is_ours:
                return False
            above, made_by = os.path.dirname(path), found.st_uid  # noqa: PTH120
            if above == path:
                break
            path = above
        return True

    return can_trust
