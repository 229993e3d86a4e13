"""The tables of docs/reference/wire-format.md say what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from millstream.protocol import handshake
from millstream.protocol.handshake import Protection, Role
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.protocol.messages import FROM_COORDINATOR, FROM_WORKERS, KINDS
from millstream.protocol.packets import ELEMENTS, PacketKind
from millstream.protocol.permits import permit
from millstream.runtime import wire
from millstream.runtime.integrity import (
    CHECKSUM,
    FIELD_BYTES,
    UNTOUCHED,
    Integrity,
    PacketTags,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire-format.md"


def table(first_column: str, second_column: str) -> list[list[str]]:
    """Return the rows of the table whose head begins so."""
    head = re.escape(f"| {first_column} | {second_column} |")
    found = re.search(
        rf"^{head}.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE
    )
    assert found is not None
    lines = found[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def layout(rows: list[list[str]]) -> list[tuple[int, int]]:
    """Return offset and length of every field, and check that there is no gap."""
    places = [(int(row[0]), int(row[1])) for row in rows]
    ends = [offset + size for offset, size in places]
    assert [offset for offset, _ in places] == [0, *ends[:-1]]
    return places


def tables_of_fields() -> list[list[list[str]]]:
    """Return both tables with offsets: that of HELLO and that of the header."""
    found = re.findall(
        r"^\| offset \| bytes \| field \| value \|\n\|[-|]+\n((?:\|.*\n)+)",
        PAGE.read_text(),
        re.MULTILINE,
    )
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in lines.splitlines()
        ]
        for lines in found
    ]


def test_packet_kinds_are_those_of_the_code() -> None:
    """Number, name, who exchanges them, and the length where it is fixed."""
    rows = table("kind", "name")

    assert {int(row[0]): row[1] for row in rows} == {
        k.value: k.name for k in PacketKind
    }
    to_coordinator = permit(COORDINATOR, PeerId(1)).kinds
    between = permit(PeerId(1), PeerId(2)).kinds
    for number, _, who, size, *_ in rows:
        kind = PacketKind(int(number))
        assert (who == "coordinator and worker") == (kind in to_coordinator)
        assert who.startswith("workers") == (kind in between)
        assert ("writer to reader" in who) == (kind in ELEMENTS)
        fixed = wire._PAYLOAD_BYTES.get(kind)
        assert size == ("any" if fixed is None else str(fixed))


def test_messages_are_those_of_the_code() -> None:
    """Tag, name, direction and fields in their order."""
    rows = table("tag", "message")

    assert [(int(row[0]), row[1]) for row in rows] == [
        (tag, kind.__name__) for tag, kind in enumerate(KINDS)
    ]
    for (_, _, sender, named), kind in zip(rows, KINDS, strict=True):
        assert named == (", ".join(f.name for f in fields(kind)) or "none")
        assert (sender in {"coordinator", "both"}) == (kind in FROM_COORDINATOR)
        assert (sender in {"worker", "both"}) == (kind in FROM_WORKERS)


def test_hello_is_laid_out_as_in_the_code() -> None:
    """Field by field, as a client packs it."""
    rows, _ = tables_of_fields()
    client = handshake.ClientHandshake(
        b"key",
        bytes(range(16)),
        PeerId(5),
        b"n" * 32,
        peer=PeerId(6),
        role=Role.HEARTBEAT,
    )
    parts = {
        row[2]: client.hello[offset : offset + size]
        for row, (offset, size) in zip(rows, layout(rows), strict=True)
    }

    assert sum(map(len, parts.values())) == handshake.HELLO_BYTES
    assert parts["magic"] == handshake.MAGIC == rows[0][3].strip("`").encode()
    assert parts["version"] == bytes([handshake.VERSION]) == bytes([int(rows[1][3])])
    assert parts["role"] == bytes([Role.HEARTBEAT])
    assert rows[2][3] == ", ".join(f"{role.value} {role.name}" for role in Role)
    assert parts["protection"] == bytes([Protection.MAC])
    assert parts["padding"] == b"\0"
    assert parts["job"] == bytes(range(16))
    assert (parts["client"], parts["server"]) == (b"\0\0\0\5", b"\0\0\0\6")
    assert parts["client nonce"] == b"n" * 32


def test_the_header_is_laid_out_as_in_the_code() -> None:
    """Magic, version, and fields of the same sizes."""
    _, rows = tables_of_fields()
    sizes = [size for _, size in layout(rows)]

    assert sum(sizes) == FIELD_BYTES == wire._FIELDS.size
    assert sizes == [2, 1, 1, 4, 4, 8, 4]
    assert rows[0][3].strip("`").encode() == wire.MAGIC
    assert int(rows[1][3]) == wire.VERSION


def test_steps_of_the_handshake_have_the_sizes_of_the_code() -> None:
    """Four messages, by turns."""
    rows = table("step", "from")

    assert [int(row[2]) for row in rows] == [
        handshake.HELLO_BYTES,
        handshake.NONCE_BYTES,
        handshake.PROOF_BYTES,
        handshake.PROOF_BYTES,
    ]
    assert [row[1] for row in rows] == ["client", "server"] * 2


@pytest.mark.parametrize("row", table("number", "protection"), ids=lambda row: row[1])
def test_protections_are_those_of_the_code(row: list[str]) -> None:
    """Number, name, and how long the trailer of a packet is."""
    number, name, _, trailer = row
    integrities: dict[Protection, Integrity] = {
        Protection.PLAIN: CHECKSUM,
        Protection.MAC: PacketTags(bytes(32)),
        Protection.TLS: UNTOUCHED,
    }

    assert Protection[name].value == int(number)
    assert trailer.startswith(f"{integrities[Protection[name]].trailer_bytes} bytes")
