"""Which epochs are visible in an output directory, from the names of its parts."""

from __future__ import annotations

import re
from pathlib import Path

from millstream.connectors import remote
from millstream.connectors.paths import local_path
from millstream.credentials import harmless, shown, without_credentials
from millstream.errors import UsageError

__all__ = ["last_epoch_in"]

_PART_OF_EPOCH = re.compile(r"part-.*-(\d{6,})(?:-\d{4})?\.[^/]+")


def last_epoch_in(directory: str) -> int:
    """Return the newest epoch that a part carries in its name, 0 if none does.

    Parts of the first epoch carry none.
    """
    matches = map(_PART_OF_EPOCH.fullmatch, _names(local_path(directory)))
    return max((int(found[1]) for found in matches if found), default=0)


def _names(place: str) -> list[str]:
    try:
        if not remote.is_url(place):
            return [path.name for path in Path(place).expanduser().iterdir()]
        system, root = remote.file_system(place)
        system.invalidate_cache()
        return [str(path).rpartition("/")[2] for path in system.ls(root, detail=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        cause = without_credentials(str(error), place)
        msg = f"the output directory {shown(place)} cannot be read ({cause})"
        raise UsageError(msg) from harmless(error, place)
