"""A corpus of nasty URLs: what is shown of each, and what never is."""

from __future__ import annotations

import pickle
import re

import pytest

from millstream.credentials import Credential, secrets_of, shown, without_credentials

CORPUS = {
    "sftp://bob:hunter2@host/x": "sftp://host/x",
    "sftp://hunter2@host/x": "sftp://host/x",
    "sftp://:hunter2@host/x": "sftp://host/x",
    "s3://AKIA:hun/ter2+key@bucket/x": "s3://bucket/x",
    "s3://AKIA:12/hunter2@bucket/x": "s3://bucket/x",
    "s3://AKIA:hunter2/@bucket/x": "s3://bucket/x",
    "ftp://bob:p@hunter2@host:21/x": "ftp://host:21/x",
    "ftp://bob:hun/t@er2@host:21/x": "ftp://host:21/x",
    "http://bob:hun?ter2@host/x": "http://host/x",
    "http://bob:hun#ter2@host/x": "http://host/x",
    "http://bob:hunter2%zz@host/x": "http://host/x",
    "http://bob:hun ter2@host/x y": "http://host/x y",
    "HTTPS://bob:hunter2@HOST/x": "HTTPS://HOST/x",
    "https://bob:hunter2@[::1]:8443/x": "https://[::1]:8443/x",
    "https://host/x?sig=hunter2": "https://host/x",
    "https://host/x?hunter2": "https://host/x",
    "https://host/x?hunter2=": "https://host/x",
    "https://host/x?a=1;b=hunter2#hunter2": "https://host/x",
    "https://host/x#access_token=hunter2": "https://host/x",
    "https://host?X-Amz-Signature=hunter2": "https://host",
    "s3://bucket/x?versionId=hunter2": "s3://bucket/x",
    "s3://bucket/x#token=hunter2": "s3://bucket/x",
    "abfs://bob:hunter2@account/x": "abfs://account/x",
    "abfss://data@account.example/x?sig=hunter2": "abfss://data@account.example/x",
    "sc://host:15002/;token=hunter2;user_id=bob": "sc://host:15002/",
    "zip://a.csv::https://bob:hunter2@host/x": "zip://host/x",
}
HARMLESS = (
    "books/*.txt",
    "/data/bob:hunter2@host",
    "s3://bucket/mail/bob@example.com/in-?.csv",
    "s3://bucket/day=1/part-?.csv",
    "s3://bucket/a#1.csv",
    "sftp://host:22/home/bob/x",
    "abfs://data@account.example/bob@realm/x",
    "memory://word-count",
)


@pytest.mark.parametrize(("url", "expected"), CORPUS.items())
def test_a_nasty_url_is_shown_without_what_is_secret(url: str, expected: str) -> None:
    """Rather too little is shown than a part of a password."""
    assert shown(url) == expected


@pytest.mark.parametrize("place", HARMLESS)
def test_a_place_without_credentials_is_shown_whole(place: str) -> None:
    """An ``@`` in a path, a port, a container or a wildcard is no credential."""
    assert shown(place) == place
    assert secrets_of(place) == []


@pytest.mark.parametrize("url", CORPUS)
def test_a_package_that_repeats_a_nasty_url_is_not_believed(url: str) -> None:
    """Nor one that has cut it at another place, or decoded it."""
    cut = url.partition("://")[2].split("/")[0]
    text = without_credentials(f"cannot open {url!r}: {url}, bad host {cut!r}", url)

    assert not [part for part in ("hunter2", "AKIA:hun", "ter2") if part in text]
    assert "cannot open" in text


@pytest.mark.parametrize(
    "url",
    [
        "https://bob:hunter2@host/x?mail=a@realm/x",
        "webhdfs://bob:hunter2@node:9870/user@realm/x",
        "sftp://bob:12/hunter2@realm/x",
        "sftp://node:22/hunter2@realm/x",
    ],
)
def test_too_little_is_shown_with_a_number(url: str) -> None:
    """What looks alike is another input; another password is not."""
    text, others = (
        shown(url),
        (url.replace("node", "other"), url.replace("/x", "/y", 1)),
    )

    assert re.fullmatch(r"\w+://realm/x \(~[0-9a-f]{8}\)", text)
    assert [shown(other) == text for other in others] == [o == url for o in others]
    assert shown(url.replace("bob:hunter2@", "bob:changed@")) == text


def test_a_url_that_nobody_knew_of_is_redacted_too() -> None:
    """A package names the server that it was sent on to."""
    text = without_credentials("moved to 'https://bob:hunter2@host/x?sig=5', and back")

    assert text == "moved to 'https://host/x', and back"


def test_a_credential_is_not_shown_and_travels() -> None:
    """Workers need it; a message never does."""
    credential = Credential("hunter2")

    assert "hunter2" not in f"{credential} {credential!r} {[credential]}"
    assert pickle.loads(pickle.dumps(credential)).value == "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "Password=hunter2;Server=db",
        "PWD=hunter2",
        "PGPASSWORD=hunter2 psql",
        "passwd = hunter2",
        'password="hunter2 and more"',
        "{'host': 'db', 'password': 'hunter2'}",
    ],
)
def test_a_password_is_hidden_however_it_is_written(text: str) -> None:
    """In connection strings of any kind, and in dicts that somebody shows."""
    assert "hunter2" not in without_credentials(text)


@pytest.mark.parametrize(
    "text", ["the password is too short", "password: see the wiki", "no pwd given"]
)
def test_a_sentence_about_passwords_stays(text: str) -> None:
    """Nothing is hidden that is no password."""
    assert without_credentials(text) == text


@pytest.mark.parametrize("piece", ["A", "a+", "s3://x", "?", "s3://x?", "password "])
def test_a_long_text_is_looked_through_once(piece: str) -> None:
    """A row that is one long word, as base64 is, must not hold its worker up for minutes.

    Nobody looks at a clock: in the square of its length this would take hours.
    """
    told = without_credentials(
        f"{piece * (2_000_000 // len(piece))} sftp://b:hunter2@h"
    )
    assert told.endswith(" sftp://h")


def test_a_url_behind_a_long_word_is_redacted_all_the_same() -> None:
    """What stands before ``://`` may be longer than any scheme."""
    text = f"{'x' * 100}https://bob:hunter2@host/x"
    assert without_credentials(text) == f"{'x' * 100}https://host/x"


def test_a_text_with_lone_surrogates_is_redacted() -> None:
    """As the name of a file has them that is no UTF-8."""
    told = without_credentials("no sftp://bob:hunter2@host/a@\udcff")
    assert "hunter2" not in told
