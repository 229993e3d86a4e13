"""Getting the compiled kernels without waiting for them.

The first call of `ready` starts a thread that imports the `jit_` modules, which compiles
them or loads them from Numba's cache; until a module is there, `ready` answers None and
callers take their slower way.  Where Numba is not installed, None is the last word.

Nothing here knows what a kernel computes.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import threading
from typing import TYPE_CHECKING, Literal

from millstream.errors import UsageError
from millstream.observe.log import logger

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Engine", "Family", "chosen", "is_installed", "ready"]

Family = Literal["index", "scatter", "lines", "counts", "fields", "tokens"]

Engine = Literal["auto", "native", "polars"]
"""`auto` is native as soon as that is compiled; `native` waits; `polars` never asks."""

#: In the order in which they are compiled.
FAMILIES: tuple[Family, ...] = (
    *("index", "scatter", "lines", "counts", "fields", "tokens"),
)

_log = logger("state.kernels")


def is_installed() -> bool:
    """Tell whether there is a Numba that compiles."""
    if importlib.util.find_spec("numba") is None:
        return False
    return os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"


def ready(family: Family) -> ModuleType | None:
    """Return the kernels of a family if they are compiled, and see that they will be."""
    module = _loader.modules.get(family)
    if module is None and not _loader.is_started:
        _loader.start()
    return module


def chosen(family: Family, engine: Engine) -> ModuleType | None:
    """Return the kernels to use, or None for the way without them."""
    if engine == "polars":
        return None
    module = ready(family)
    if module is None and engine == "native":
        _loader.join()
        module = _loader.modules.get(family)
        if module is None:
            msg = (
                "the native engine needs Numba, which is missing or does not work here; "
                "`pip install millstream[native]`, or ask for engine='auto'"
            )
            raise UsageError(msg)
    return module


class _Loader:
    """Imports the kernels in a thread of its own, one family after the other."""

    def __init__(self) -> None:
        self.modules: dict[Family, ModuleType] = {}
        self.is_started = False
        self._is_stopping = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self.is_started:
                return
            self.is_started = True
            if is_installed():
                self._thread = threading.Thread(
                    target=self._load, name="millstream-kernels", daemon=True
                )
                self._thread.start()
                # The interpreter must not end in the middle of a compilation.
                atexit.register(self.stop)

    def stop(self) -> None:
        self._is_stopping = True
        self.join()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _load(self) -> None:
        for family in FAMILIES:
            if self._is_stopping:
                return
            name = f"{__package__}.jit_{family}"
            try:
                self.modules[family] = importlib.import_module(name)
            except Exception:  # noqa: BLE001 - the slower way gives the same results
                _log.warning("could not compile %s; doing without", name, exc_info=True)


_loader = _Loader()
