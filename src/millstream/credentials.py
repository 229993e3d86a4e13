"""What must not be shown or stored: user info, queries and passwords of URLs and DSNs.

`shown` is the one way in which a place reaches a message, a log line, a manifest or the
name of a split: scheme, host and path alone.  It errs on the side of leaving too much out,
since passwords hold ``/``, ``?`` and ``@``.  `without_credentials` is for what other
packages say about a place, `Credential` for what travels to workers apart from the flow.

Nothing here opens anything.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Credential",
    "apart",
    "harmless",
    "lent",
    "one_line",
    "secrets_of",
    "shown",
    "without_credentials",
]

_HIDDEN = "***"
_SECRET_LETTERS_MIN = 3
_VALUE_LETTERS_MIN = 6
"""Shorter ones are parts of too many words; most values of a query are no secrets."""

_WEB = frozenset({"http", "https"})
_WITHOUT_PORTS = frozenset({"gcs", "gs", "oci", "oss", "s3", "s3a", "s3n"})
_WITH_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Their URLs have the container where others have the user."""

_CONTAINER = re.compile(r"[a-z0-9$-]{1,63}@")
_PORT = re.compile(r"(?:\[[^]]*\]|[^:]*):[0-9]{1,5}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>()]+")


class Credential:
    """A text that a worker needs and nobody else may see.

    Examples
    --------
    >>> Credential("postgresql://mill:hunter2@db/shop")
    Credential(***)
    """

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_HIDDEN})"

    def __reduce__(self) -> tuple[Any, ...]:
        values = _apart.get()
        if values is None:
            return Credential, (self.value,)
        values.append(self.value)
        return _taken_back, (len(values) - 1,)


_apart: ContextVar[list[str] | None] = ContextVar(
    "millstream_credentials", default=None
)


@contextmanager
def apart(values: list[str]) -> Iterator[None]:
    """Pickle credentials into `values` instead of into the pickle, and load them from there.

    Examples
    --------
    >>> import pickle
    >>> values = []
    >>> with apart(values):
    ...     data = pickle.dumps(Credential("hunter2"))
    >>> b"hunter2" in data, values
    (False, ['hunter2'])
    >>> with apart(values):
    ...     pickle.loads(data).value
    'hunter2'
    """
    token = _apart.set(values)
    try:
        yield
    finally:
        _apart.reset(token)


def _taken_back(index: int) -> Credential:
    values = _apart.get()
    assert values is not None, "its values travel beside it"
    return Credential(values[index])


def shown(place: str) -> str:
    """Return a path as it is, and of a URL what may be shown: scheme, host and path.

    Of a URL with user info everything up to its last ``@`` is left out.  If that may have
    been a part of the path, a number tells it from others that look alike.  The query of a web
    address is left out, and elsewhere, where ``?`` is a wildcard, one that has a ``=``; so
    are fragments and what follows a semicolon.

    Examples
    --------
    >>> shown("sftp://mill:hunter2@host/in/*.csv")
    'sftp://host/in/*.csv'
    >>> shown("s3://AKIA7:se/cret+key@bucket/in")
    's3://bucket/in'
    >>> shown("https://host/a.csv?X-Amz-Signature=5f1c")
    'https://host/a.csv'
    >>> shown("sftp://mill:hunter2@host/mail/bob@example.com/in")
    'sftp://example.com/in (~7ab6d4a7)'
    """
    scheme, mark, rest = place.partition("://")
    if not mark:
        return place
    kind = scheme.lower()
    left = rest[_user_info_length(kind, rest) :]
    return f"{scheme}://{left[: _path_length(kind, left)]}{_number(kind, rest)}"


def secrets_of(place: str) -> list[str]:
    """Return the parts of a URL that `shown` leaves out, the longest first.

    They are there as they stand, decoded, encoded, and in the pieces in which a package
    that reads the URL in another way may repeat them.
    """
    scheme, mark, rest = place.partition("://")
    if not mark:
        return []
    kind = scheme.lower()
    length = _user_info_length(kind, rest)
    user_info, rest = rest[:length], rest[length:]
    found = _pieces(user_info.removesuffix("@"))
    query = rest[_path_length(kind, rest) :][1:]
    values = [pair.partition("=")[2] or pair for pair in re.split(r"[&;#]", query)]
    for value in (query, *values):
        found.update(v for v in _variants(value) if len(v) >= _VALUE_LETTERS_MIN)
    return _longest_first(found)


def without_credentials(text: str, *places: str, secrets: Iterable[str] = ()) -> str:
    """Return what somebody else says about places, without what these keep secret.

    Parameters
    ----------
    places
        URLs that the text may repeat as a whole or in part; every other one in it is
        redacted too.
    secrets
        What else it must not hold, such as a password.

    Examples
    --------
    >>> url = "sftp://mill:hunter2@host/x"
    >>> without_credentials(f"{url} refuses 'hunter2', see http://h/?token=5", url)
    "sftp://host/x refuses '***', see http://h/"
    """
    for place in places:
        text = text.replace(place, shown(place))
    hidden = {variant for secret in secrets for variant in _variants(secret)}
    hidden.update(secret for place in places for secret in secrets_of(place))
    for secret in _longest_first(hidden):
        text = text.replace(secret, _HIDDEN)
    return _URL.sub(lambda match: shown(match[0]), text)


def one_line(error: BaseException, *places: str, secrets: Iterable[str] = ()) -> str:
    """Return an error of another package as a line without what the places keep secret."""
    text = " ".join(str(error).split())
    return without_credentials(
        f"{type(error).__name__}: {text}", *places, secrets=secrets
    )


def harmless(
    error: BaseException, *places: str, secrets: Iterable[str] = ()
) -> BaseException | None:
    """Return an error to raise another one from, unless it tells what places keep secret.

    A traceback shows the text of the cause, and of the cause of that.
    """
    told = "".join(traceback.format_exception(error))
    hidden = [secret for place in places for secret in secrets_of(place)]
    return None if any(secret in told for secret in (*hidden, *secrets)) else error


def lent(place: str, lender: str) -> str:
    """Return a URL that was stored, with the user info of another one of the same host.

    Examples
    --------
    >>> lent("sftp://host/old", "sftp://mill:hunter2@host/new")
    'sftp://mill:hunter2@host/old'
    >>> lent("sftp://other/old", "sftp://mill:hunter2@host/new")
    'sftp://other/old'
    """
    scheme, mark, rest = lender.partition("://")
    if _number(scheme.lower(), rest):
        return place
    length = _user_info_length(scheme.lower(), rest)
    root = f"{scheme}{mark}"
    host = rest[length:].partition("/")[0]
    if mark and f"{place}/".startswith(f"{root}{host}/"):
        return f"{root}{rest[:length]}{place.removeprefix(root)}"
    return place


def _user_info_length(scheme: str, rest: str) -> int:
    """Return how much of what follows ``://`` is, or may be, user and password."""
    authority = _authority(rest)
    is_container = scheme in _WITH_CONTAINERS and _CONTAINER.match(rest)
    may_be = "@" in authority or ":" in authority
    return rest.rfind("@") + 1 if may_be and not is_container else 0


def _number(scheme: str, rest: str) -> str:
    """Return a number for host and path of a URL of which too much may be left out.

    That is so where an ``@`` follows what can be read as a host.  Who reads a URL as
    fsspec does finds no part of a password in them.
    """
    authority = _authority(rest)
    has_port = scheme not in _WITHOUT_PORTS and _PORT.fullmatch(authority)
    if _user_info_length(scheme, rest) <= len(authority) or not (
        "@" in authority or has_port
    ):
        return ""
    path = re.split(r"[?#]", rest[len(authority) :], maxsplit=1)[0]
    place = authority.rpartition("@")[2] + path
    return f" (~{hashlib.sha256(place.encode()).hexdigest()[:8]})"


def _authority(rest: str) -> str:
    return re.split(r"[/?#]", rest, maxsplit=1)[0]


def _path_length(scheme: str, rest: str) -> int:
    """Return how much of host, path, query and fragment is host and path."""
    for match in re.finditer(r"[?#;]", rest):
        ends_path = scheme in _WEB and match[0] != ";"
        if ends_path or "=" in rest[match.start() :]:
            return match.start()
    return len(rest)


def _pieces(text: str) -> set[str]:
    """Return a text, and what it is made of whatever its reader takes for a separator."""
    password = text.partition(":")[2]
    parts = [text, password, *text.split("/"), *re.split(r"[/:?#&;=@]", text)]
    return {variant for part in parts for variant in _variants(part)}


def _variants(text: str) -> set[str]:
    decoded = unquote(text)
    return {text, decoded, quote(decoded, safe=""), repr(decoded)[1:-1]}


def _longest_first(texts: Iterable[str]) -> list[str]:
    long_enough = (text for text in texts if len(text) >= _SECRET_LETTERS_MIN)
    return sorted(long_enough, key=lambda text: (-len(text), text))
