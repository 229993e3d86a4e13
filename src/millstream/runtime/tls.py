"""TLS 1.3 between the members of one job, without sockets and without files.

The driver makes one self-signed certificate per job and hands it, with its key, to every
worker.  Both sides of a connection present it and both accept nothing else: there is no
authority, no name to check and no other version to fall back to.  Which job is meant
stands in the server name, so that a stranger is turned away before anything is signed.

`TLSSession` takes and gives bytes; who moves them is `runtime.line`.  Why TLS, why one
certificate, and why it does not expire: ``docs/design/0009-encrypted-traffic.md``.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.runtime.integrity import Buffer

__all__ = ["Certificate", "TLSContexts", "TLSSession", "make_certificate"]

_NOT_BEFORE = datetime(2000, 1, 1, tzinfo=UTC)
_NOT_AFTER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""What RFC 5280 has for "no end": a job may run for years, and clocks may be wrong."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, both as PEM."""

    public: bytes
    private: bytes = field(repr=False)


def make_certificate() -> Certificate:
    """Return a new self-signed certificate; nobody but its holders will accept it."""
    # Only a driver makes one, and workers should start quickly.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "millstream")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM), private)


class TLSContexts:
    """What both sides of the connections of one process share."""

    def __init__(self, certificate: Certificate, job: bytes) -> None:
        self._name = job.hex()
        self._client = _context(ssl.PROTOCOL_TLS_CLIENT, certificate)
        self._server = _context(ssl.PROTOCOL_TLS_SERVER, certificate)
        self._server.num_tickets = 0
        self._server.sni_callback = self._check_name

    def client(self) -> TLSSession:
        """Return the dialing side of a new connection."""
        return TLSSession(self._client, self._name)

    def server(self) -> TLSSession:
        """Return the listening side of a new connection."""
        return TLSSession(self._server)

    def _check_name(
        self, _session: object, name: str | None, _context: object
    ) -> int | None:
        if name == self._name:
            return None
        return int(ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)


def _context(side: int, certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET
    context.load_verify_locations(cadata=certificate.public.decode())
    with _as_file(certificate.private + certificate.public) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give bytes a path for as long as somebody reads it: `ssl` takes keys from files only.

    Where the system has files that are only in memory, nothing reaches a disk.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("millstream", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="millstream-")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
        yield path
    finally:
        Path(path).unlink()


class TLSSession:
    """One side of one connection; bytes of the network on one side, ours on the other.

    Every method but `take` and `outgoing` may raise `ssl.SSLError`; the session is
    useless afterwards, but what `outgoing` then gives tells the peer why.
    """

    def __init__(self, context: ssl.SSLContext, name: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=name is None,
            server_hostname=name,
        )
        #: Whether the handshake is over.
        self.is_ready = False
        #: Whether a client has been answered.
        self.has_answered = False
        #: What broke the session behind the last bytes that `read` gave.
        self.failure: ssl.SSLError | None = None

    def take(self, data: Buffer) -> None:
        """Take bytes from the network."""
        self._incoming.write(data)

    def outgoing(self) -> bytes:
        """Return all bytes that must go to the network now."""
        return self._outgoing.read()

    def advance(self) -> bool:
        """Go on with the handshake as far as the bytes reach; return whether it is over."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            self.is_ready = True
        self.has_answered |= self._ssl.server_side and self._outgoing.pending > 0
        return self.is_ready

    def read(self, target: memoryview) -> int:
        """Fill `target` as far as there is something; 0 means that more must come."""
        filled, size = 0, len(target)
        try:
            while filled < size:
                count: Any = self._ssl.read(size - filled, target[filled:])
                if not count:
                    raise ssl.SSLZeroReturnError
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.failure = error
            if not filled:
                raise
        return filled

    def write(self, data: Buffer) -> None:
        """Take bytes of ours for the other side."""
        self._ssl.write(data)

    def close(self) -> None:
        """Say that nothing of ours follows."""
        with suppress(ssl.SSLError):
            self._ssl.unwrap()
