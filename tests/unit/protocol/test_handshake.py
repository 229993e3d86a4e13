"""Handshake machines: by hand, and with every byte of every message damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import LocalProtocolError
from millstream.protocol.handshake import (
    HELLO_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    ClientHandshake,
    Done,
    Outcome,
    Protection,
    Refused,
    Role,
    Send,
    ServerHandshake,
    derive_key,
)
from millstream.protocol.ids import PeerId

KEY = derive_key(b"secret of the job", b"data")
JOB = b"job-0123456789ab"
SERVER, CLIENT = PeerId(7), PeerId(9)
TRANSCRIPT_BYTES = HELLO_BYTES + NONCE_BYTES + 2 * PROOF_BYTES


class Server(ServerHandshake):
    """Asked after all that it receives whether that can be."""

    def receive(self, data: bytes) -> list[Outcome]:
        outcomes = super().receive(data)
        self.validate()
        return outcomes


class Client(ClientHandshake):
    """As `Server`."""

    def receive(self, data: bytes) -> list[Outcome]:
        outcomes = super().receive(data)
        self.validate()
        return outcomes


def a_server(
    key: bytes = KEY,
    job: bytes = JOB,
    own_id: PeerId = SERVER,
    nonce: bytes = b"s" * NONCE_BYTES,
) -> ServerHandshake:
    return Server(key, job, own_id, nonce)


def a_client(
    key: bytes = KEY,
    job: bytes = JOB,
    own_id: PeerId = CLIENT,
    nonce: bytes = b"c" * NONCE_BYTES,
    role: Role = Role.DATA,
) -> ClientHandshake:
    return Client(key, job, own_id, nonce, peer=SERVER, role=role)


def sent(outcomes: list[Outcome]) -> bytes:
    assert isinstance(outcomes[0], Send)
    return outcomes[0].data


def refusal(outcomes: list[Outcome]) -> str:
    """Return the reason; a refusal comes alone, so nothing is written before it."""
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], Refused)
    return outcomes[0].reason


def transcript() -> tuple[bytes, bytes, bytes, bytes]:
    client, server = a_client(), a_server()
    nonce = sent(server.receive(client.hello))
    proof = sent(client.receive(nonce))
    return client.hello, nonce, proof, sent(server.receive(proof))


@pytest.mark.parametrize("role", list(Role))
def test_two_members_of_a_job_find_each_other(role: Role) -> None:
    """The server learns who called and why; the client learns that it may speak."""
    client, server = a_client(role=role), a_server()

    proof = sent(client.receive(sent(server.receive(client.hello))))
    answer, welcome = server.receive(proof)

    assert isinstance(answer, Send)
    (done,) = client.receive(answer.data + b"a frame")
    assert isinstance(welcome, Done)
    assert isinstance(done, Done)
    assert (welcome.peer, welcome.role, welcome.leftover) == (CLIENT, role, b"")
    assert (done.peer, done.role, done.leftover) == (SERVER, role, b"a frame")


def frame_keys(nonce: bytes = b"s" * NONCE_BYTES) -> tuple[Done, Done]:
    """Return how a handshake ended for the client and for the server."""
    client, server = a_client(), a_server(nonce=nonce)
    proof = sent(client.receive(sent(server.receive(client.hello))))
    answer, welcome = server.receive(proof)
    assert isinstance(answer, Send)
    (done,) = client.receive(answer.data)
    assert isinstance(welcome, Done)
    assert isinstance(done, Done)
    return done, welcome


def test_both_sides_derive_a_key_for_each_direction() -> None:
    """What one side sends with, the other receives with, and never the same both ways."""
    done, welcome = frame_keys()

    assert done.keys.sending == welcome.keys.receiving
    assert done.keys.receiving == welcome.keys.sending
    assert done.keys.sending != done.keys.receiving
    assert len(done.keys.sending) == 32


def test_keys_of_two_connections_differ() -> None:
    """A frame of an earlier connection cannot be played into a later one."""
    done, _ = frame_keys()
    other, _ = frame_keys(nonce=b"t" * NONCE_BYTES)

    assert done.keys != other.keys


def test_keys_are_in_no_representation() -> None:
    """What is logged or shown by a failing test must not be of use to anybody."""
    done, _ = frame_keys()

    assert repr(done.keys.sending) not in repr(done)
    assert repr(done.keys.sending) not in repr(done.keys)


@pytest.mark.parametrize("offered", [Protection.PLAIN, Protection.TLS])
def test_another_protection_is_refused(offered: Protection) -> None:
    """Nothing is negotiated, so there is nothing to talk a server down to."""
    client = ClientHandshake(
        KEY, JOB, CLIENT, bytes(32), peer=SERVER, protection=offered
    )

    assert "offers protection" in refusal(a_server().receive(client.hello))


def test_every_message_is_short() -> None:
    """A stranger can make us keep at most one message of 128 bytes."""
    assert [len(message) for message in transcript()] == [
        HELLO_BYTES,
        NONCE_BYTES,
        PROOF_BYTES,
        PROOF_BYTES,
    ]
    assert max(HELLO_BYTES, NONCE_BYTES, PROOF_BYTES) <= 128


@given(st.lists(st.integers(1, HELLO_BYTES), max_size=6))
def test_messages_may_arrive_in_any_pieces(sizes: list[int]) -> None:
    """A stream has no boundaries; only the last piece has an outcome."""
    server = a_server()
    rest = a_client().hello
    for size in sizes:
        if size < len(rest):
            assert server.receive(rest[:size]) == []
            rest = rest[size:]

    assert server.receive(rest) == [Send(b"s" * NONCE_BYTES)]


@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("position", range(TRANSCRIPT_BYTES))
def test_a_flipped_bit_anywhere_is_refused(position: int, bit: int) -> None:
    """Every byte of all four messages is checked, or under a proof that is."""
    client, server = a_client(), a_server()
    left = position

    def wire(message: bytes) -> bytes:
        nonlocal left
        at, left = left, left - len(message)
        if not 0 <= at < len(message):
            return message
        return message[:at] + bytes([message[at] ^ (1 << bit)]) + message[at + 1 :]

    outcomes = server.receive(wire(client.hello))
    for machine in (client, server, client):
        if isinstance(outcomes[-1], Refused):
            break
        outcomes = machine.receive(wire(sent(outcomes)))

    refusal(outcomes)


def test_a_replayed_transcript_is_refused() -> None:
    """What was heard on the wire yesterday does not answer today's nonce."""
    hello, _, proof, _ = transcript()
    server = a_server(nonce=b"t" * NONCE_BYTES)
    server.receive(hello)

    assert "secret" in refusal(server.receive(proof))


def test_a_replayed_server_is_refused() -> None:
    """A client with a new nonce does not believe an old server."""
    _, nonce, _, answer = transcript()
    client = a_client(nonce=b"d" * NONCE_BYTES)
    client.receive(nonce)

    assert "secret" in refusal(client.receive(answer))


def test_a_proof_sent_back_to_its_author_is_refused() -> None:
    """The labels of the two proofs differ, so a mirror learns nothing."""
    client = a_client()
    proof = sent(client.receive(b"s" * NONCE_BYTES))

    assert "secret" in refusal(client.receive(proof))


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (a_client(job=b"another-job-0000"), "belongs to job"),
        (a_client(own_id=SERVER), "our own peer id 7"),
        (ClientHandshake(KEY, JOB, CLIENT, bytes(32), peer=PeerId(8)), "wants peer 8"),
    ],
)
def test_a_stray_client_is_refused_before_the_server_answers(
    client: ClientHandshake, reason: str
) -> None:
    """Somebody who wants another job or another peer gets not even a nonce."""
    assert reason in refusal(a_server().receive(client.hello))


def test_a_client_without_the_secret_gets_no_proof() -> None:
    """The server never computes anything with its key for a stranger."""
    client, server = a_client(key=derive_key(b"guess", b"data")), a_server()
    proof = sent(client.receive(sent(server.receive(client.hello))))

    assert "secret" in refusal(server.receive(proof))


def test_a_server_without_the_secret_is_refused() -> None:
    """A client tells a false server nothing but its own proof."""
    client = a_client()
    client.receive(b"s" * NONCE_BYTES)

    assert "secret" in refusal(client.receive(b"?" * PROOF_BYTES))


def test_a_client_that_does_not_wait_for_its_turn_is_refused() -> None:
    """Nothing can follow HELLO before the nonce is known."""
    assert "turn" in refusal(a_server().receive(a_client().hello + b"x"))


@pytest.mark.parametrize("garbage", [b"G", b"\x16\x03\x01", b"MSHX", bytes(5000)])
def test_garbage_is_refused_at_its_first_wrong_byte(garbage: bytes) -> None:
    """A stranger does not get to fill even one message."""
    assert "first bytes" in refusal(a_server().receive(garbage))


def test_a_machine_takes_nothing_after_its_end() -> None:
    """Bytes behind the handshake are frames; mixing them up is our own bug."""
    server = a_server()
    server.receive(b"garbage")

    with pytest.raises(LocalProtocolError, match="handshake is over"):
        server.receive(a_client().hello)


def test_a_nonce_of_the_wrong_size_is_our_own_fault() -> None:
    """A short nonce would be padded silently and guessed easily."""
    with pytest.raises(LocalProtocolError, match="nonce has 32 bytes, got 4"):
        a_client(nonce=b"four")


def test_keys_of_two_purposes_differ() -> None:
    """Knowing the key of one purpose says nothing about another."""
    assert derive_key(b"secret", b"data") != derive_key(b"secret", b"control")
    assert derive_key(b"secret", b"data") == derive_key(b"secret", b"data")
    assert len(derive_key(b"", b"")) == 32
