"""What must not be shown or stored: user info, queries and passwords of URLs and DSNs.

`shown` is the one way in which a place reaches a message, a log line, a manifest or the
name of a split: scheme, host and path alone.  It errs on the side of leaving too much out,
since passwords hold ``/``, ``?`` and ``@``.  `Credential` is for what travels to workers
apart from the flow.  `without_credentials` is for whatever somebody else said and we
repeat: it knows every `Credential` that this process holds, and so does `harmless`.

Nothing here opens anything.
"""

from __future__ import annotations

import hashlib
import re
import threading
import traceback
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Credential",
    "apart",
    "cleanse",
    "cleansed",
    "harmless",
    "holds_secret",
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

_USER_LETTERS_MIN = 12
"""A shorter user is a name, which may be that of a directory too, and no token or key."""

_WEB = frozenset({"http", "https"})
_WITHOUT_PORTS = frozenset({"gcs", "gs", "oci", "oss", "s3", "s3a", "s3n"})
_WITH_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Their URLs have the container where others have the user."""

_CONTAINER = re.compile(r"[a-z0-9$-]{1,63}@")
_PORT = re.compile(r"(?:\[[^]]*\]|[^:]*):[0-9]{1,5}")
_URL = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{0,31}://(?:[^\s/@:]*:[^\s/@]*@)?[^\s'\"<>()]*"
)
"""In a text, where quotes and brackets end a URL, but not a password.

A scheme without a bound would take the square of the length of a text that is one word, as
a row in base64 is; of a longer scheme the end is found, and so all that is behind it.
"""

_PASSWORD = re.compile(
    r"""(?ix) \b ( (?:ssl|pg)? (?:password|passwd|pwd) ['"]? \s* (?: = | (?<=['"]) \s* : ) \s* )
    (?: '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | [^\s'",;)}\]]+ )"""
)
"""In a connection string such as libpq's or ODBC's, or in a dict that is shown."""


class Credential:
    """A text that a worker needs and nobody else may see.

    No message of a process that holds one repeats it.

    Parameters
    ----------
    secrets
        What of the text is secret, such as the password in it; of a URL that is known
        without.

    Examples
    --------
    >>> shop = Credential("postgresql://mill:hunter2@db/shop")
    >>> shop
    Credential(***)
    >>> without_credentials("the server refuses 'hunter2'")
    "the server refuses '***'"
    """

    __slots__ = ("__weakref__", "_secrets", "value")

    def __init__(self, value: str, secrets: Iterable[str] | None = None) -> None:
        self.value = value
        self._secrets = None if secrets is None else tuple(secrets)
        if self._secrets or "://" in value:
            _held.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_HIDDEN})"

    def __reduce__(self) -> tuple[Any, ...]:
        values, own = _apart.get(), (self.value, self._secrets)
        if values is None:
            return Credential, own
        values.append(own)
        return _taken_back, (len(values) - 1,)

    def told(self) -> tuple[str, str, set[str]]:
        """Return what stands for the text where it is repeated, and what is secret."""
        instead = shown(self.value) if "://" in self.value else _HIDDEN
        if self._secrets is not None:
            variants = map(_variants, self._secrets)
            return self.value, instead, {each for some in variants for each in some}
        hidden, user = set(secrets_of(self.value)), _user_of(self.value)
        if len(user) < _USER_LETTERS_MIN:
            hidden -= _variants(user)
        return self.value, instead, hidden


class _Known(NamedTuple):
    """What the credentials of this process keep secret, the longest first."""

    places: list[tuple[str, str]]
    secrets: list[str]


class _Held:
    """The credentials that something in this process still needs."""

    def __init__(self) -> None:
        self._credentials: WeakSet[Credential] = WeakSet()
        self._count = 0
        #: A credential may be collected, or made, while the lock is held.
        self._lock = threading.RLock()
        self._known = _Known([], [])
        self._known_at = (0, 0)

    def add(self, credential: Credential) -> None:
        with self._lock:
            self._credentials.add(credential)
            self._count += 1

    def known(self) -> _Known:
        with self._lock:
            at = (self._count, len(self._credentials))
            if at != self._known_at:
                told = [credential.told() for credential in self._credentials]
                places = {place: instead for place, instead, _ in told}
                secrets = {secret for _, _, some in told for secret in some}
                longest = sorted(places, key=len, reverse=True)
                known = [(place, places[place]) for place in longest]
                self._known = _Known(known, _longest_first(secrets))
                self._known_at = at
            return self._known


_held = _Held()
_Value = tuple[str, tuple[str, ...] | None]
_apart: ContextVar[list[_Value] | None] = ContextVar(
    "millstream_credentials", default=None
)


@contextmanager
def apart(values: list[_Value]) -> Iterator[None]:
    """Pickle credentials into `values` instead of into the pickle, and load them from there.

    Examples
    --------
    >>> import pickle
    >>> values = []
    >>> with apart(values):
    ...     data = pickle.dumps(Credential("hunter2"))
    >>> b"hunter2" in data, values
    (False, [('hunter2', None)])
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
    return Credential(*values[index])


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
    """Return what somebody else says, without what must not be seen.

    That is whatever a `Credential` of this process keeps secret, user info and query of
    every URL in the text, known or not, and passwords in connection strings.

    Parameters
    ----------
    places
        URLs beside those that the text may repeat as a whole or in part.
    secrets
        What else it must not hold, such as a password.

    Examples
    --------
    >>> url = "sftp://mill:hunter2@host/x"
    >>> without_credentials(f"{url} refuses 'hunter2', see http://h/?token=5", url)
    "sftp://host/x refuses '***', see http://h/"
    """
    known = _held.known()
    for place, instead in (*((place, shown(place)) for place in places), *known.places):
        text = text.replace(place, instead)
    hidden = {variant for secret in secrets for variant in _variants(secret)}
    hidden.update(secret for place in places for secret in secrets_of(place))
    for secret in (*_longest_first(hidden), *known.secrets):
        text = text.replace(secret, _HIDDEN)
    text = _URL.sub(lambda match: shown(match[0]), text)
    return _PASSWORD.sub(rf"\1{_HIDDEN}", text)


def one_line(error: BaseException, *places: str, secrets: Iterable[str] = ()) -> str:
    """Return an error of another package as a line without what the places keep secret."""
    text = " ".join(str(error).split())
    return without_credentials(
        f"{type(error).__name__}: {text}", *places, secrets=secrets
    )


def harmless(
    error: BaseException, *places: str, secrets: Iterable[str] = ()
) -> BaseException | None:
    """Return an error to raise another one from, unless it tells what must not be seen.

    A traceback shows the text of the cause, and of the cause of that; what a package
    keeps in an error, such as a connection, may tell more.
    """
    told = "".join([*traceback.format_exception(error), *_attributes(error)])
    is_told = without_credentials(told, *places, secrets=secrets) != told
    return None if is_told else error


def cleanse(error: BaseException) -> None:
    """Take out of an error that leaves us what must not be seen, and of its causes.

    Its texts are redacted; a cause that tells a secret is left out, and so is every
    error that was to be hidden when another one was raised.
    """
    error.args = cleansed(error.args)
    for name, value in vars(error).items():
        setattr(error, name, cleansed(value))
    for each in _led_by(error):
        if each.__suppress_context__ and each.__context__ is not each.__cause__:
            each.__context__ = None
    for name in ("__cause__", "__context__"):
        before = getattr(error, name)
        if before is not None and harmless(before) is None:
            setattr(error, name, None)
            error.__suppress_context__ = True


def _led_by(error: BaseException) -> list[BaseException]:
    """Return an error and those that led to it, as a traceback shows them."""
    led: list[BaseException] = []
    earlier: BaseException | None = error
    while earlier is not None and earlier not in led:
        led.append(earlier)
        is_hidden = earlier.__suppress_context__
        earlier = earlier.__cause__ or (None if is_hidden else earlier.__context__)
    return led


def _attributes(error: BaseException) -> Iterator[str]:
    """Yield what an error, and what led to it, keeps."""
    for each in _led_by(error):
        with suppress(Exception):  # a repr may raise anything
            yield f"{each.args!r}{vars(each)!r}"


def cleansed(value: Any) -> Any:
    """Return a value whose texts, if it is one or consists of some, are redacted."""
    if isinstance(value, str):
        return without_credentials(value)
    if type(value) in {list, tuple}:
        return type(value)(cleansed(each) for each in value)
    return value


def holds_secret(data: bytes) -> bool:
    """Whether bytes hold what a `Credential` of this process keeps secret."""
    return any(secret.encode() in data for secret in _held.known().secrets)


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
    number = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()
    return f" (~{number[:8]})"


def _user_of(place: str) -> str:
    scheme, _, rest = place.partition("://")
    return rest[: _user_info_length(scheme.lower(), rest)].partition(":")[0].rstrip("@")


def _authority(rest: str) -> str:
    return re.split(r"[/?#]", rest, maxsplit=1)[0]


def _path_length(scheme: str, rest: str) -> int:
    """Return how much of host, path, query and fragment is host and path."""
    last_value = rest.rfind("=")
    for match in re.finditer(r"[?#;]", rest):
        ends_path = scheme in _WEB and match[0] != ";"
        if ends_path or match.start() < last_value:
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
