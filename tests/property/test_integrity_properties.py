"""Protected byte streams: cut anywhere, damaged, dropped, repeated or swapped anywhere.

Method: hypothesis makes packets and a way to cut their bytes into chunks, or a way to
tamper with them.  Chunks never change what arrives; of a stream that was tampered with
nothing arrives but a prefix of what was sent.
"""

from __future__ import annotations

import ssl
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.errors import RemoteProtocolError
from millstream.protocol.ids import ChannelId, Generation
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.integrity import UNTOUCHED, PacketTags
from millstream.runtime.tls import TLSContexts, TLSSession, make_certificate
from millstream.runtime.wire import PacketDecoder, PacketEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT = 64 * 1024
LONG = b"-" * 9_000
"""Behind a short content it makes a payload whose own tag stands for it."""
KEY = bytes(range(32))
JOB = b"job-0123456789ab"
CONTEXTS = TLSContexts(make_certificate(), JOB)

contents_of_rows = st.binary(max_size=300) | st.binary(max_size=9).map(
    lambda short: short + LONG
)
bodies = st.lists(contents_of_rows, min_size=2, max_size=5, unique=True)
sizes = st.lists(st.integers(1, 400), max_size=20)


def packets_of(contents: list[bytes]) -> list[Packet]:
    return [
        Packet(PacketKind.BATCH, Generation(1), ChannelId(1), number, [content])
        for number, content in enumerate(contents)
    ]


def tagged(packets: list[Packet]) -> list[bytes]:
    """Return the bytes of every packet, with tags of one connection."""
    tags, encoder = PacketTags(KEY), PacketEncoder(LIMIT)
    return [b"".join(tags.closed(*encoder.encode(packet))) for packet in packets]


def received(data: bytes, sizes: Sequence[int] = ()) -> list[Packet]:
    """Return what a receiver believes before it hangs up, if it does."""
    decoder = PacketDecoder(bytearray(256), LIMIT, integrity=PacketTags(KEY))
    return delivered(decoder.feed, data, sizes)


def delivered(
    take: Callable[[bytes], list[Packet]], data: bytes, sizes: Sequence[int]
) -> list[Packet]:
    packets: list[Packet] = []
    edges = [0]
    for size in sizes:
        edges.append(min(len(data), edges[-1] + size))
    try:
        for start, end in pairwise([*edges, len(data)]):
            packets += take(data[start:end])
    except (RemoteProtocolError, ssl.SSLError):
        pass
    return packets


@given(contents=bodies, sizes=sizes)
def test_tagged_packets_arrive_whatever_the_chunks(
    contents: list[bytes], sizes: list[int]
) -> None:
    """The network may cut and join the bytes as it likes."""
    packets = packets_of(contents)

    assert received(b"".join(tagged(packets)), sizes) == packets


@given(contents=bodies, data=st.data())
def test_a_changed_byte_ends_a_tagged_stream(
    contents: list[bytes], data: st.DataObject
) -> None:
    """What came before it is believed, and nothing from there on."""
    packets = packets_of(contents)
    stream = bytearray(b"".join(tagged(packets)))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= data.draw(st.integers(1, 255))

    arrived = received(bytes(stream) + bytes(2 * LIMIT))

    assert len(arrived) < len(packets)
    assert arrived == packets[: len(arrived)]


@given(contents=bodies, data=st.data())
def test_a_dropped_repeated_or_swapped_packet_ends_a_tagged_stream(
    contents: list[bytes], data: st.DataObject
) -> None:
    """Each packet is right by itself, and stands where it was not sent."""
    packets = packets_of(contents)
    sent = tagged(packets)
    at = data.draw(st.integers(0, len(sent) - 2))
    kind = data.draw(st.sampled_from(["drop", "repeat", "swap"]))
    if kind == "drop":
        changed = sent[:at] + sent[at + 1 :]
    elif kind == "repeat":
        changed = sent[: at + 1] + sent[at:]
    else:
        changed = [*sent[:at], sent[at + 1], sent[at], *sent[at + 2 :]]

    arrived = received(b"".join(changed), [len(packet) for packet in changed])

    assert arrived == packets[: at + 1 if kind == "repeat" else at]


def test_a_tag_of_the_other_direction_is_refused() -> None:
    """Packets that are sent back to their author are not their peer's."""
    (sent,) = tagged(packets_of([b"row"]))
    decoder = PacketDecoder(bytearray(256), LIMIT, integrity=PacketTags(KEY[::-1]))

    with pytest.raises(
        RemoteProtocolError, match="not the one that its peer sent next"
    ):
        decoder.feed(sent)


def connected() -> tuple[TLSSession, TLSSession]:
    """Return both sides of a TLS connection."""
    client, server = CONTEXTS.client(), CONTEXTS.server()
    while not (client.is_ready and server.is_ready):
        for one, other in ((client, server), (server, client)):
            one.advance()
            other.take(one.outgoing())
    return client, server


def reader(session: TLSSession) -> Callable[[bytes], list[Packet]]:
    """Return a function that takes encrypted bytes and gives packets."""
    decoder = PacketDecoder(bytearray(256), LIMIT, integrity=UNTOUCHED)

    def take(data: bytes) -> list[Packet]:
        session.take(data)
        packets: list[Packet] = []
        while count := session.read(decoder.writable()):
            packets += decoder.received(count)
        return packets

    return take


def encrypted(session: TLSSession, packets: list[Packet]) -> list[bytes]:
    """Return the bytes of every packet as TLS records."""
    encoder, records = PacketEncoder(LIMIT), []
    for packet in packets:
        session.write(b"".join(UNTOUCHED.closed(*encoder.encode(packet))))
        records.append(session.outgoing())
    return records


@examples(0.5)
@given(contents=bodies, sizes=sizes)
def test_packets_inside_tls_arrive_whatever_the_chunks(
    contents: list[bytes], sizes: list[int]
) -> None:
    """Records of TLS and packets have different borders, and chunks a third kind."""
    client, server = connected()
    packets = packets_of(contents)

    stream = b"".join(encrypted(client, packets))

    assert delivered(reader(server), stream, sizes) == packets


@examples(0.5)
@given(contents=bodies, data=st.data())
def test_tampering_ends_a_stream_inside_tls(
    contents: list[bytes], data: st.DataObject
) -> None:
    """A changed byte, or a record that was dropped, repeated or swapped."""
    client, server = connected()
    packets = packets_of(contents)
    records = encrypted(client, packets)
    at = data.draw(st.integers(0, len(records) - 2))
    kind = data.draw(st.sampled_from(["change", "drop", "repeat", "swap"]))
    if kind == "change":
        place = data.draw(st.integers(0, len(records[at]) - 1))
        changed = bytearray(records[at])
        changed[place] ^= data.draw(st.integers(1, 255))
        records[at] = bytes(changed)
    elif kind == "drop":
        del records[at]
    elif kind == "repeat":
        records.insert(at, records[at])
    else:
        records[at], records[at + 1] = records[at + 1], records[at]

    arrived = delivered(reader(server), b"".join(records) + bytes(LIMIT), ())

    assert len(arrived) <= at + (kind == "repeat")
    assert arrived == packets[: len(arrived)]


def test_a_stranger_with_another_certificate_is_refused() -> None:
    """Any certificate but that of the job is refused by both sides."""
    other = TLSContexts(make_certificate(), JOB)
    for client, server in (
        (other.client(), CONTEXTS.server()),
        (CONTEXTS.client(), other.server()),
    ):
        client.advance()
        server.take(client.outgoing())
        server.advance()
        client.take(server.outgoing())
        with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_VERIFY_FAILED"):
            client.advance()


def test_a_client_without_a_certificate_is_refused() -> None:
    """A stranger who does not look at the server's certificate has none to show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client, server = TLSSession(context, JOB.hex()), CONTEXTS.server()
    client.advance()
    server.take(client.outgoing())
    server.advance()
    client.take(server.outgoing())
    assert client.advance()
    server.take(client.outgoing())

    with pytest.raises(ssl.SSLError, match="did not return a certificate"):
        server.advance()


def test_an_older_tls_is_refused() -> None:
    """There is one version, so there is none to fall back to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = TLSSession(context, JOB.hex()), CONTEXTS.server()
    client.advance()
    server.take(client.outgoing())

    with pytest.raises(
        ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL|unsupported protocol"
    ):
        server.advance()


@pytest.mark.parametrize("name", [None, "localhost", "00" * 16])
def test_who_does_not_know_the_job_gets_no_certificate(name: str | None) -> None:
    """The server name is looked at before anything is signed or shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    server = CONTEXTS.server()
    server.take(outgoing.read())

    with pytest.raises(ssl.SSLError):
        server.advance()

    assert not server.has_answered
    assert len(server.outgoing()) < 16


def test_a_key_is_on_no_disk_and_in_no_representation() -> None:
    """`ssl` wants a path; the one it gets is memory."""
    certificate = make_certificate()

    assert b"PRIVATE KEY" in certificate.private
    assert "PRIVATE" not in repr(certificate)
