"""Which manifests are the history of a job, by their names alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import LocalProtocolError
from millstream.state.layout import (
    NOTHING,
    ManifestId,
    claim_name,
    file_name,
    history,
    origin_name,
    parsed_listing,
    parsed_state_file,
    state_name,
)

IDS = st.builds(ManifestId, st.integers(1, 10**7), st.integers(0, 10**9))


def test_epochs_of_one_driver_are_newest_first() -> None:
    """The usual case."""
    ids = [ManifestId(1, epoch) for epoch in (9, 10, 8)]
    assert history(ids, {1: NOTHING}) == sorted(ids, reverse=True)


def test_newer_claim_wins_over_a_higher_epoch() -> None:
    """A driver that was thought dead may have got further before it died."""
    old, origin, new = ManifestId(1, 9), ManifestId(1, 7), ManifestId(2, 8)
    assert history([old, origin, new], {1: NOTHING, 2: origin}) == [new, origin]


def test_claim_between_two_that_follow_each_other_is_a_fork() -> None:
    """Claim 3 found the manifests of claim 2 damaged and went on from claim 1."""
    one, two, three = ManifestId(1, 5), ManifestId(2, 6), ManifestId(3, 6)
    origins = {1: NOTHING, 2: one, 3: one}
    assert history([one, two, three], origins) == [three, one]


def test_driver_that_began_from_nothing_has_no_older_history() -> None:
    """What its predecessor wrote after it looked is a fork."""
    assert history([ManifestId(1, 1)], {1: NOTHING, 2: NOTHING}) == []


def test_claim_that_never_went_on_changes_nothing() -> None:
    """It died before it had done anything."""
    one = ManifestId(1, 5)
    listing = parsed_listing([claim_name(1), claim_name(2)], [one.name])
    assert listing.claim_max == 2
    assert history(listing.manifests, {}) == [one]
    assert listing.origins == {}


def test_manifests_alone_are_a_history() -> None:
    """A savepoint has no claims."""
    ids = [ManifestId(3, 7), ManifestId(2, 6), ManifestId(2, 5)]
    assert history(ids, {}) == ids


@given(st.lists(IDS), st.dictionaries(st.integers(1, 10**7), IDS))
def test_names_say_all_there_is_to_know(
    ids: list[ManifestId], origins: dict[int, ManifestId]
) -> None:
    """Numbers of any length come back from names."""
    claims = [origin_name(claim, origins[claim]) for claim in origins]
    listing = parsed_listing(claims, [each.name for each in ids])
    assert listing.manifests == set(ids)
    assert dict(listing.origins.values()) == origins
    assert listing.claim_max == max([0, *origins, *(each.claim for each in ids)])


@given(st.lists(IDS, unique=True), st.dictionaries(st.integers(1, 10**7), IDS))
def test_history_never_goes_up(
    ids: list[ManifestId], origins: dict[int, ManifestId]
) -> None:
    """Whatever claims say, older manifests have lower claims or lower epochs."""
    found = history(ids, origins)
    assert found == sorted(found, reverse=True)
    assert set(found) <= set(ids)


def test_name_of_a_state_file_says_epoch_and_run() -> None:
    """That is what decides whether it is garbage."""
    name = state_name(7, "f3", worker=1, stage=2, task=3, generation=4, suffix="base")
    assert name == "epochs/00000007/f3-1-2-3-4.base"
    assert parsed_state_file(name) == (7, "f3")
    assert parsed_state_file("epochs/00000007/readme") is None


@pytest.mark.parametrize("run", ["", "a-b", "a/b", ".."])
def test_run_that_would_blur_names_is_refused(run: str) -> None:
    """The run ends at the first dash."""
    with pytest.raises(LocalProtocolError, match="letters and digits"):
        file_name(1, run, "x")
