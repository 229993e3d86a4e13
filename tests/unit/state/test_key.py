"""The key of a state directory."""

from __future__ import annotations

import pytest
from tests.support.snapshots import MemoryFiles

from millstream.errors import SnapshotError, UsageError
from millstream.state.key import KEY_VARIABLE, state_key, stored_key


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def test_key_is_made_once() -> None:
    """All drivers of a directory find the same."""
    files = MemoryFiles()
    assert stored_key(files) is None
    assert state_key(files) == state_key(files) == stored_key(files)
    assert len(state_key(files)) == 32


def test_driver_that_lost_the_race_takes_the_key_of_the_other() -> None:
    """Otherwise each would call the other's manifests forged."""

    class Raced(MemoryFiles):
        def publish(self, name: str, data: bytes) -> None:
            super().publish(name, b"r" * 32)
            super().publish(name, data)

    assert state_key(Raced()) == b"r" * 32


def test_no_key_is_made_for_snapshots_that_have_one() -> None:
    """A new key would make all of them look forged."""
    files = MemoryFiles({"manifests/00000001-000001.manifest": b""})
    with pytest.raises(SnapshotError, match="no file `key`"):
        state_key(files)
    assert "key" not in files.content


def test_key_of_another_length_is_refused() -> None:
    """An empty key would verify what anybody wrote."""
    with pytest.raises(SnapshotError, match="has 0 bytes instead of 32"):
        state_key(MemoryFiles({"key": b""}))


def test_key_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then none is stored."""
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    files = MemoryFiles()
    assert state_key(files) == b"\xab" * 32
    assert files.content == {}


@pytest.mark.parametrize("text", ["secret", "ab" * 31, "zz" * 32])
def test_unusable_key_of_the_environment_is_a_usage_error(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says how to make one, and does not show this one."""
    monkeypatch.setenv(KEY_VARIABLE, text)
    with pytest.raises(UsageError, match="openssl rand") as caught:
        state_key(MemoryFiles())
    assert text not in str(caught.value)
