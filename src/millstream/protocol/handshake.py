"""How two processes prove to each other that they belong to the same job.

The machines here take bytes and return what the caller must do with the
connection.  They do not know sockets, deadlines or where a nonce comes from.

Theory of operation
-------------------
Four messages of fixed size; the dialing side is the *client*::

    client                                                        server
      -- HELLO(magic, version, role, protection, job, own id, server's id, nonce) ->
      <- server nonce ------------------------------------------------
      -- HMAC(key, "client" | HELLO | server nonce) ----------------->
      <- HMAC(key, "server" | HELLO | server nonce) ------------------

The client proves first, so a stranger never gets anything computed with the key.
Both nonces are under both proofs, so an old transcript proves nothing; the two
labels differ, so a proof sent back to its author proves nothing either.  Of the same
transcript both sides derive a key for each direction, for those who protect packets by it:
somebody who relays the four messages does not know them.

How a connection is protected is decided by the driver, once for all connections of a job.
HELLO says it so that it stands under the proofs; nothing is negotiated, and who says
anything else than the server expects is refused.

Rules
-----
1. A machine keeps at most one incomplete message.
2. The first wrong byte refuses the connection, and a refusal sends nothing.
3. After `Done` or `Refused` the machine takes no more bytes.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from enum import IntEnum

from millstream.errors import LocalProtocolError
from millstream.protocol.ids import PeerId

__all__ = [
    "HELLO_BYTES",
    "JOB_BYTES",
    "NONCE_BYTES",
    "PROOF_BYTES",
    "VERSION",
    "ClientHandshake",
    "Done",
    "Outcome",
    "PacketKeys",
    "Protection",
    "Refused",
    "Role",
    "Send",
    "ServerHandshake",
    "derive_key",
]

MAGIC = b"MSHS"
VERSION = 2
JOB_BYTES = 16
NONCE_BYTES = 32
PROOF_BYTES = 32

_HELLO = struct.Struct(">4sBBBx16sII32s")
HELLO_BYTES = _HELLO.size


class Role(IntEnum):
    """What a connection is for; the number is its byte in HELLO."""

    DATA = 1
    """The one connection of a pair of peers."""
    HEARTBEAT = 2
    """A second connection of a worker that only says that it is alive."""


class Protection(IntEnum):
    """What guards a connection behind its handshake; the number is its byte in HELLO."""

    PLAIN = 1
    """Nothing but a checksum against accidents."""
    MAC = 2
    """Every packet carries a tag: nobody can add, change, repeat or reorder one."""
    TLS = 3
    """All bytes, those of the handshake too, are inside TLS 1.3: nobody can read them."""


@dataclass(frozen=True, slots=True, repr=False)
class PacketKeys:
    """A key of 32 bytes for the packets of each direction of one connection."""

    sending: bytes
    receiving: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes to the connection."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """The other side is who it says it is; `leftover` came after its proof."""

    peer: PeerId
    role: Role
    keys: PacketKeys = field(repr=False, compare=False)
    leftover: bytes = b""


@dataclass(frozen=True, slots=True)
class Refused:
    """Close the connection without another byte; `reason` is for our own log."""

    reason: str


Outcome = Send | Done | Refused


def derive_key(secret: bytes, purpose: bytes) -> bytes:
    """Return the 32-byte key of one purpose (HKDF with SHA-256, one block).

    Examples
    --------
    >>> derive_key(b"secret", b"data") == derive_key(b"secret", b"control")
    False
    """
    extracted = hmac.digest(b"millstream", secret, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def _proof(key: bytes, label: bytes, hello: bytes, nonce: bytes) -> bytes:
    sizes = len(hello), len(nonce)
    assert sizes == (HELLO_BYTES, NONCE_BYTES), f"{sizes} bytes leave a proof open"
    return hmac.digest(key, label + hello + nonce, "sha256")


def _checked(name: str, value: bytes, size: int) -> bytes:
    if len(value) != size:
        msg = f"{name} has {size} bytes, got {len(value)}"
        raise LocalProtocolError(msg)
    return value


def _packet_keys(key: bytes, hello: bytes, nonce: bytes) -> tuple[bytes, bytes]:
    """Return the keys of what the client and of what the server sends."""
    session = _proof(key, b"packets", hello, nonce)
    of_client, of_server = (
        derive_key(session, b"client"),
        derive_key(session, b"server"),
    )
    assert of_client != of_server, "what one side sends could be sent back to it"
    return of_client, of_server


class _Inbox:
    """Collect one message of known size, and nothing behind it."""

    def __init__(self, size: int) -> None:
        assert size > 0, f"a message of {size} bytes never comes"
        self._size = size
        self._partial = b""

    def take(self, data: bytes) -> tuple[bytes, bytes | None, bytes]:
        """Return what there is of the message, the whole one if so, and the rest."""
        missing = self._size - len(self._partial)
        assert missing > 0, f"all {self._size} bytes have come already"
        self._partial += data[:missing]
        whole = self._partial if len(self._partial) == self._size else None
        assert len(self._partial) <= self._size, f"more is kept than {self._size} bytes"
        return self._partial, whole, data[missing:]

    def validate(self, due: int, *, is_over: bool) -> None:
        """Assert that a message of this size is waited for, and has not come whole."""
        size, length = self._size, len(self._partial)
        assert size == due, f"{size} bytes are waited for, and {due} are due"
        assert length < size or is_over, f"{length} of {size} bytes have come"

    def expect(self, size: int) -> None:
        length = len(self._partial)
        assert length == self._size, f"only {length} of {self._size} bytes have come"
        assert size > 0, f"a message of {size} bytes never comes"
        self._size, self._partial = size, b""


class ServerHandshake:
    """The listening side.

    Parameters
    ----------
    key
        What only members of the job can know; see `derive_key`.
    job
        16 bytes that name the job.
    own_id
        The peer id that a client must be looking for.
    nonce
        32 bytes that were never used before.
    protection
        What guards the connections of this job.

    Examples
    --------
    >>> server = ServerHandshake(b"key", bytes(16), PeerId(0), bytes(32))
    >>> server.receive(b"GET / HTTP/1.1")
    [Refused(reason="the first bytes b'GET ' are not those of a peer")]
    """

    def __init__(
        self,
        key: bytes,
        job: bytes,
        own_id: PeerId,
        nonce: bytes,
        *,
        protection: Protection = Protection.MAC,
    ) -> None:
        assert key, "a proof without a key proves nothing"
        self._key = key
        self._protection = protection
        self._job = _checked("a job id", job, JOB_BYTES)
        self._own_id = own_id
        self._nonce = _checked("a nonce", nonce, NONCE_BYTES)
        self._inbox = _Inbox(HELLO_BYTES)
        self._hello: bytes | None = None
        self._over = False

    def validate(self) -> None:
        """Assert that it waits for what is due next; called by every test."""
        due = HELLO_BYTES if self._hello is None else PROOF_BYTES
        self._inbox.validate(due, is_over=self._over)

    @property
    def is_greeted(self) -> bool:
        """Whether the client knows the name of the job, which strangers do not."""
        return self._hello is not None

    def receive(self, data: bytes) -> list[Outcome]:
        """Take bytes from the client; no outcome means that more must come."""
        if self._over:
            msg = "the handshake is over; its bytes belong to somebody else now"
            raise LocalProtocolError(msg)
        partial, whole, rest = self._inbox.take(data)
        if self._hello is None and not MAGIC.startswith(partial[: len(MAGIC)]):
            reason = (
                f"the first bytes {partial[: len(MAGIC)]!r} are not those of a peer"
            )
            return self._refuse(reason)
        if rest:
            return self._refuse("the client spoke before it was its turn")
        if whole is None:
            return []
        return self._greet(whole) if self._hello is None else self._verify(whole)

    def _greet(self, hello: bytes) -> list[Outcome]:
        assert hello.startswith(MAGIC), f"{hello[:4]!r} was taken for a peer's"
        assert self._hello is None, "the client has been greeted before"
        complaint = self._complaint(hello)
        if complaint:
            return self._refuse(complaint)
        self._hello = hello
        self._inbox.expect(PROOF_BYTES)
        return [Send(self._nonce)]

    def _complaint(self, hello: bytes) -> str:
        """Return what is wrong with a HELLO; nothing, if it is for us."""
        assert len(hello) == HELLO_BYTES, f"{len(hello)} of {HELLO_BYTES} bytes came"
        _, version, role, protection, job, client, server, _ = _HELLO.unpack(hello)
        wrong = {
            f"the client speaks version {version}, not {VERSION}": version != VERSION,
            f"there is no connection of role {role}": (
                hello[7:8] != b"\0" or role not in tuple(Role)
            ),
            f"the client offers protection {protection}, not {self._protection}": (
                protection != self._protection
            ),
            f"the client belongs to job {job.hex()}": job != self._job,
            f"the client wants peer {server}, not {self._own_id}": (
                server != self._own_id
            ),
            f"the client claims our own peer id {client}": client == self._own_id,
        }
        return next((text for text, is_so in wrong.items() if is_so), "")

    def _verify(self, proof: bytes) -> list[Outcome]:
        assert self._hello is not None
        expected = _proof(self._key, b"client", self._hello, self._nonce)
        if not hmac.compare_digest(proof, expected):
            return self._refuse("the client does not know the secret of this job")
        self._over = True
        _, _, role, _, _, client, _, _ = _HELLO.unpack(self._hello)
        assert client != self._own_id, f"peer {client} proved itself to itself"
        answer = _proof(self._key, b"server", self._hello, self._nonce)
        of_client, of_server = _packet_keys(self._key, self._hello, self._nonce)
        keys = PacketKeys(sending=of_server, receiving=of_client)
        return [Send(answer), Done(PeerId(client), Role(role), keys)]

    def _refuse(self, reason: str) -> list[Outcome]:
        assert not self._over, f"it is over, and then {reason}"
        self._over = True
        return [Refused(reason)]


class ClientHandshake:
    """The dialing side; write `hello` first, then hand it what comes back.

    Parameters are those of `ServerHandshake`, and

    peer
        The peer id that the server must have.
    role
        What the connection is for.
    """

    def __init__(
        self,
        key: bytes,
        job: bytes,
        own_id: PeerId,
        nonce: bytes,
        *,
        peer: PeerId,
        protection: Protection = Protection.MAC,
        role: Role = Role.DATA,
    ) -> None:
        _checked("a job id", job, JOB_BYTES)
        _checked("a nonce", nonce, NONCE_BYTES)
        assert key, "a proof without a key proves nothing"
        self.hello = _HELLO.pack(
            MAGIC, VERSION, role, protection, job, own_id, peer, nonce
        )
        self._key = key
        self._peer = peer
        self._role = role
        self._inbox = _Inbox(NONCE_BYTES)
        self._server_nonce: bytes | None = None
        self._over = False

    def validate(self) -> None:
        """Assert that it waits for what is due next; called by every test."""
        due = NONCE_BYTES if self._server_nonce is None else PROOF_BYTES
        self._inbox.validate(due, is_over=self._over)

    @property
    def is_greeted(self) -> bool:
        """Whether the server has answered, and so will either prove or close."""
        return self._server_nonce is not None

    def receive(self, data: bytes) -> list[Outcome]:
        """Take bytes from the server; no outcome means that more must come."""
        if self._over:
            msg = "the handshake is over; its bytes belong to somebody else now"
            raise LocalProtocolError(msg)
        _, whole, rest = self._inbox.take(data)
        if whole is None:
            return []
        if self._server_nonce is None:
            return self._prove(whole, rest)
        return self._verify(whole, rest)

    def _prove(self, nonce: bytes, rest: bytes) -> list[Outcome]:
        if rest:
            return self._refuse("the server spoke before it was its turn")
        assert self._server_nonce is None, "the server has sent a nonce before"
        self._server_nonce = nonce
        self._inbox.expect(PROOF_BYTES)
        return [Send(_proof(self._key, b"client", self.hello, nonce))]

    def _verify(self, proof: bytes, rest: bytes) -> list[Outcome]:
        assert self._server_nonce is not None
        expected = _proof(self._key, b"server", self.hello, self._server_nonce)
        if not hmac.compare_digest(proof, expected):
            return self._refuse("the server does not know the secret of this job")
        self._over = True
        of_client, of_server = _packet_keys(self._key, self.hello, self._server_nonce)
        keys = PacketKeys(sending=of_client, receiving=of_server)
        return [Done(self._peer, self._role, keys, rest)]

    def _refuse(self, reason: str) -> list[Outcome]:
        assert not self._over, f"it is over, and then {reason}"
        self._over = True
        return [Refused(reason)]
