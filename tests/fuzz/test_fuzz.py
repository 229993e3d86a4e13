"""Random programs, interrupted, changed and resumed, give what plain Python says."""

from __future__ import annotations

import time
from itertools import count, takewhile

import pytest
from tests.fuzz.corpus import CORPUS
from tests.fuzz.hunting import hunt
from tests.fuzz.mutants import MUTANTS
from tests.fuzz.running import play
from tests.fuzz.telling import told
from tests.support.examples import is_exhaustive

SMOKE_EXAMPLES = 12
SEARCH_SECONDS = 600.0
SEEDS = range(1, 13 if is_exhaustive() else 4)


@pytest.mark.parametrize("name", CORPUS)
def test_what_went_wrong_once_stays_right(name: str) -> None:
    """Each is the smallest scenario of a mistake that was mended."""
    assert play(CORPUS[name]) == ""


def test_a_few_random_programs() -> None:
    """So that somebody who breaks the fuzzer hears of it soon."""
    finding = hunt(0, SMOKE_EXAMPLES)
    assert finding is None, f"\n{finding}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed: int) -> None:
    """Launchers, stops, widths, changes and second instances, as they are drawn."""
    finding = hunt(seed)
    assert finding is None, f"\n{finding}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_known_scenarios_show_a_mutant(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario of the corpus that passes without the fix proves nothing."""
    MUTANTS[name].patch(monkeypatch)

    passed = [known for known in MUTANTS[name].shown_by if not play(CORPUS[known])]
    assert not passed


if is_exhaustive():

    @pytest.mark.slow
    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("name", MUTANTS)
    def test_search_finds_a_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Within ten minutes, with nobody telling it where to look."""
        MUTANTS[name].patch(monkeypatch)

        deadline = time.monotonic() + SEARCH_SECONDS
        seeds = takewhile(lambda _: time.monotonic() < deadline, count(1))
        assert any(hunt(seed, shrinks=False) for seed in seeds)


def test_a_failure_is_told_as_a_script() -> None:
    """What is printed can be compiled, and says how each leg was run."""
    scenario = CORPUS["limit with more workers"]
    text = told(scenario, "14 rows of 7")

    compile(text, "failure.py", "exec")
    assert text.startswith("# 14 rows of 7")
    assert text.count("\nrun(build_0, ") == len(scenario.legs)
    assert repr(scenario) in text
