"""A key that does not lie in the directory: given by the caller, or in the environment."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support.snapshots import MemoryFiles

from millstream.errors import UsageError
from millstream.state.files import RemoteFiles
from millstream.state.key import (
    KEY_VARIABLE,
    given_key,
    state_key,
    stored_key,
    warn_unguarded,
)

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def test_caller_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """He says it of this one flow."""
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    assert given_key() == b"\xab" * 32
    assert given_key(KEY) == given_key(lambda: KEY) == KEY


def test_given_key_is_not_stored() -> None:
    """Else it would lie beside what it proves."""
    files = MemoryFiles()
    assert state_key(files, KEY) == stored_key(files, KEY) == KEY
    assert files.content == {}


@pytest.mark.parametrize(
    "source", [b"short", "text", bytearray(32), lambda: b"", lambda: "ab" * 32]
)
def test_unusable_key_is_a_usage_error(source: Any) -> None:
    """The sentence does not show it."""
    with pytest.raises(UsageError, match="state_key must be 32 bytes") as caught:
        given_key(source)
    assert "short" not in str(caught.value)


def test_function_that_raises_is_named() -> None:
    """A vault that does not answer is the user's to look after."""

    def vault() -> bytes:
        msg = "sealed"
        raise ConnectionError(msg)

    with pytest.raises(UsageError, match="state_key raised ConnectionError: sealed"):
        given_key(vault)


def test_key_in_a_bucket_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can tell who could have put it there."""
    caplog.set_level(logging.WARNING, "millstream.state")
    bucket = RemoteFiles("memory://bucket")
    warn_unguarded(bucket, KEY)
    warn_unguarded(MemoryFiles())
    assert caplog.text == ""
    warn_unguarded(bucket)
    assert "whoever can write there can run code in this job" in caplog.text
    assert KEY_VARIABLE in caplog.text
