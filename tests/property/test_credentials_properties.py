"""Redaction: no part of a password survives, whatever letters it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.credentials import lent, shown, without_credentials

SCHEMES = st.sampled_from(["s3", "sftp", "https", "HTTPS", "memory", "gs", "webhdfs"])
#: Letters that nothing else in the URLs below has, and those that separate things.
SECRETS = st.text("XYZ0189/:?#&=@%+ '\"\\é", min_size=1, max_size=24)
PATHS = st.text("abc./*", max_size=12)
QUERIES = st.text("XYZ019=&%", max_size=20)


def letters(secret: str) -> set[str]:
    """Return what a password has that no URL of these tests has elsewhere."""
    return set(secret) & set("XYZ0189é")


@given(SCHEMES, SECRETS, PATHS)
def test_no_letter_of_a_password_is_shown(scheme: str, secret: str, path: str) -> None:
    """Also where it holds what usually ends user info."""
    text = shown(f"{scheme}://user:{secret}@host/{path}").partition(" (~")[0]

    assert text.startswith(f"{scheme}://host/")
    assert not letters(secret) & set(text)


@given(SCHEMES, PATHS, QUERIES)
def test_no_value_of_a_query_is_shown(scheme: str, path: str, query: str) -> None:
    """Signatures and tokens are in there."""
    text = shown(f"{scheme}://host/{path}?key={query}")

    assert not letters(query) & set(text)


@given(st.text("ab:/@?#=[]1.", max_size=30), SCHEMES)
def test_what_is_shown_is_shown_as_it_is(rest: str, scheme: str) -> None:
    """What was stored is compared with what is there, after one or two redactions."""
    once = shown(f"{scheme}://{rest}")

    assert shown(once) == once


@given(st.text("ab/*@:?=", max_size=30).filter(lambda text: "://" not in text))
def test_a_path_is_shown_whole(path: str) -> None:
    """It has no credentials, and people look for it."""
    assert shown(path) == path


@given(SCHEMES, st.text("XYZ0189/:?&=@%+", min_size=6, max_size=24), PATHS)
def test_what_others_say_of_a_url_is_redacted_too(
    scheme: str, secret: str, path: str
) -> None:
    """They repeat it as a whole, its user info, or the password in it."""
    url = f"{scheme}://user:{secret}@host/{path}"
    said = f"no way to {url}: user:{secret} or {secret!r} is wrong, see {url!r}"
    text = without_credentials(said, url)

    assert secret not in text
    assert "no way to " in text


@given(st.sampled_from(["s3", "sftp"]), st.text("XYZ0/", max_size=9), PATHS, PATHS)
def test_a_stored_url_borrows_the_credentials_of_its_host(
    scheme: str, secret: str, old: str, new: str
) -> None:
    """What it gets is what the program says now, and no other host gets it."""
    lender = f"{scheme}://user:x{secret}x@host/{new}"

    assert (
        lent(f"{scheme}://host/{old}", lender)
        == f"{scheme}://user:x{secret}x@host/{old}"
    )
    assert lent(f"{scheme}://hostile/{old}", lender) == f"{scheme}://hostile/{old}"
    assert lent(shown(lender), lender) == lender
