"""The gate before a job's secret: which settings of Spark let it through off loopback."""

from __future__ import annotations

import logging

import pytest

from millstream.errors import UsageError
from millstream.launch.gate import check_gate, is_protected

AUTHENTICATE = "spark.authenticate"
CRYPTO = "spark.network.crypto.enabled"
SSL = "spark.ssl.rpc.enabled"


def reading(*keys: str, value: str = "true") -> dict[str, str]:
    return dict.fromkeys(keys, value)


@pytest.mark.parametrize(
    "settings",
    [
        reading(AUTHENTICATE, CRYPTO),
        reading(AUTHENTICATE, SSL),
        reading(AUTHENTICATE, CRYPTO, SSL, value=" TRUE"),
    ],
)
def test_authentication_with_encryption_is_enough(settings: dict[str, str]) -> None:
    """As Spark reads its own settings, in any case."""
    assert is_protected(lambda key: settings.get(key, ""))


@pytest.mark.parametrize(
    ("settings", "manner"),
    [
        ({}, "without authentication and without encryption"),
        (reading(AUTHENTICATE), "to them without encryption"),
        (reading(CRYPTO), "to them without authentication,"),
        (reading(SSL), "to them without authentication,"),
        (reading(AUTHENTICATE, "spark.ssl.enabled"), "to them without encryption"),
        (
            reading(AUTHENTICATE, "spark.authenticate.enableSaslEncryption"),
            "to them without encryption",
        ),
        ({AUTHENTICATE: "true", CRYPTO: "false"}, "to them without encryption"),
        ({AUTHENTICATE: "1", CRYPTO: "yes"}, "without authentication and without"),
    ],
)
def test_anything_less_is_refused_with_the_settings_to_set(
    settings: dict[str, str], manner: str
) -> None:
    """Authentication alone lets the secret cross the network in clear."""

    def setting(key: str) -> str:
        return settings.get(key, "")

    assert not is_protected(setting)
    with pytest.raises(UsageError) as refused:
        check_gate("10.0.0.7", setting, is_insecure=False)

    text = str(refused.value)
    assert "the driver at 10.0.0.7" in text
    assert manner in text
    assert f"{AUTHENTICATE}=true and {CRYPTO}=true (or {SSL}=true)" in text
    assert "insecure=True" in text


def test_a_server_that_does_not_tell_is_refused() -> None:
    """Settings of a Spark Connect session say nothing about the way to its server."""
    with pytest.raises(UsageError, match=r"does not tell .* instead of one of Spark"):
        check_gate("10.0.0.7", None, is_insecure=False)


def test_the_one_escape_says_what_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is to learn it from an intruder."""
    with caplog.at_level(logging.WARNING, logger="millstream"):
        check_gate("10.0.0.7", lambda _: "", is_insecure=True)

    assert "can read all rows and run code in the job" in caplog.text
    assert "without authentication and without encryption" in caplog.text
