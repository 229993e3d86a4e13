"""Whether Spark may carry a job, and its secret to workers on other machines.

Spark carries the secret, the key of the state directory and the credentials of connectors
in a task.  Whoever reads them on the way can run code in the job, so off loopback Spark's
own connections must be authenticated *and* encrypted.

Pure: settings arrive as a function.  Nothing here knows a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import UsageError
from millstream.observe.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_gate", "check_speculation", "is_protected"]

_AUTHENTICATED = "spark.authenticate"
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
"""Either will do; ``spark.ssl.enabled`` alone does not reach Spark's RPC."""

_log = logger("job")


def is_protected(setting: Callable[[str], str]) -> bool:
    """Whether Spark authenticates and encrypts what it sends to executors."""
    return _is_on(setting, _AUTHENTICATED) and any(
        _is_on(setting, e) for e in _ENCRYPTED
    )


def check_gate(
    host: str, setting: Callable[[str], str] | None, *, is_insecure: bool
) -> None:
    """Refuse to hand the secret to a Spark that does not protect it, or say so in the log.

    Parameters
    ----------
    host
        Where workers would connect.
    setting
        Returns a setting of Spark as text, ``""`` where there is none; None if nobody
        knows how Spark protects its connections, as on Spark Connect.
    """
    if is_insecure:
        _log.warning(
            "insecure=True: Spark carries the job's secret to the workers %s; whoever "
            "can read or join the network between %s and the executors can read all "
            "rows and run code in the job",
            _manner(setting),
            host,
        )
        return
    if setting is None:
        what = "use a session of Spark itself instead of one of Spark Connect"
    else:
        what = f"set {_AUTHENTICATED}=true and {_ENCRYPTED[0]}=true"
        what += f" (or {_ENCRYPTED[1]}=true)"
    msg = (
        f"workers would connect to the driver at {host}, and Spark would carry the job's "
        f"secret to them {_manner(setting)}, so that others could join the job and run "
        f"code in it; {what}, or pass insecure=True on a network that you trust"
    )
    raise UsageError(msg)


def check_speculation(value: str) -> None:
    """Refuse a Spark that would start a worker a second time."""
    if value.lower() == "true":
        msg = (
            "spark.speculation is true, which would start a second copy of every worker; "
            "set it to false for this session"
        )
        raise UsageError(msg)


def _manner(setting: Callable[[str], str] | None) -> str:
    if setting is None:
        return "through a server that does not tell whether it is protected on the way"
    ways = []
    if not _is_on(setting, _AUTHENTICATED):
        ways.append("without authentication")
    if not any(_is_on(setting, each) for each in _ENCRYPTED):
        ways.append("without encryption")
    return " and ".join(ways)


def _is_on(setting: Callable[[str], str], key: str) -> bool:
    return setting(key).strip().lower() == "true"
