"""A worker that hangs in native code and holds the interpreter ends with its driver."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.spark.driving import driver_environment, eventually, is_gone

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

DRIVER = """
import ctypes, os, sys
from pathlib import Path
import millstream as ms

place = sys.argv[1]
def hang(row, place=place):
    Path(place, str(os.getpid())).touch()
    ctypes.PyDLL(None).sleep(3600)  # It does not give the interpreter back.

flow = ms.Flow("hanging")
flow.from_iterable([1]).for_each(hang)
flow.run(on="processes", workers=1, lease_ms=1500, stop_grace_ms=500, heartbeat_ms=200)
"""


@pytest.mark.timeout(180)
def test_hung_worker_does_not_outlive_its_driver(tmp_path: Path) -> None:
    """Its heart cannot beat, so nothing but a watchdog outside of Python ends it."""
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    seen = tmp_path / "seen"
    seen.mkdir()
    log = tmp_path / "said"
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [sys.executable, str(program), str(seen)],
            stdout=said,
            stderr=said,
            env=driver_environment(),
        ) as driver,
    ):
        pid = int(eventually(lambda: [path.name for path in seen.iterdir()])[0])
        assert psutil.Process(driver.pid).children()
        driver.send_signal(signal.SIGKILL)

    try:
        eventually(lambda: is_gone(pid))
    finally:
        if not is_gone(pid):
            psutil.Process(pid).kill()
    assert "in hang" in log.read_text()
