"""Expressions that cut text give what Polars gives, whichever way they are carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.columns.kernels import loading
from millstream.config import Config
from millstream.operators.build import TaskContext, build_chain
from millstream.operators.frames.text import CountTokensOperator, SplitTextOperator
from millstream.plan.frames import AggregateFrame
from millstream.plan.nodes import Regroup
from millstream.plan.rewrite import rewrite
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from millstream.operators.base import Operator

pytestmark = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)

PLAIN = st.text(alphabet="abzAZ09_'. \n\r\t-", max_size=40)
FOREIGN = st.text(
    alphabet="aZ. \nàΣ\u03c3İ\u0131\u017f\u212a²_\u0301\u200d中", max_size=30
)
ROWS = st.lists(PLAIN | PLAIN | FOREIGN | st.text(max_size=20) | st.none(), max_size=8)
PATTERNS = [r"\w+", r"\S+", r"\W+", "[a-z]+", "[a-z']+", "[^ ]+", "[A-Z]+", r"[\w.]+"]
TEXT = pl.col("text")


def expressions(text: pl.Expr) -> st.SearchStrategy[pl.Expr]:
    """Return the ways to cut that are recognized."""
    extracted = st.sampled_from(PATTERNS).map(text.str.extract_all)
    return extracted | st.sampled_from(" .\n-").map(text.str.split)


CUTS = expressions(TEXT) | expressions(TEXT.str.to_lowercase())


def queried(frame: Any, cut: pl.Expr, end: str) -> Any:
    """Cut, of a `millstream.Frame` or a `polars.LazyFrame` alike."""
    pieces = frame.select(piece=cut).explode("piece")
    if end == "filter":
        return pieces.filter(pl.col("piece").is_not_null())
    return pieces.drop_nulls() if end == "drop_nulls" else pieces


def chain(rows: ms.Frame, flow: ms.Flow) -> list[Operator]:
    """Return the operators of the sending stage of a flow, once they are compiled."""
    for family in loading.FAMILIES:
        loading.chosen(family, "native")
    rows.collect()
    skipped = (AggregateFrame, Regroup)
    nodes = [n for n in rewrite(flow.plan)[1:-1] if not isinstance(n.spec, skipped)]
    context = TaskContext(
        "job", 0, Config(), lambda _sink, _rows: None, clock=ManualClock()
    )
    return build_chain(nodes, context)


@given(rows=ROWS, cut=CUTS, end=st.sampled_from(["", "filter", "drop_nulls"]))
def test_pieces_are_those_of_polars(
    rows: list[str | None], cut: pl.Expr, end: str
) -> None:
    """In the same order, with the nulls, and with empty pieces between separators."""
    text = pl.DataFrame({"text": rows}, schema={"text": pl.String})
    flow = ms.Flow("cut")
    (operator,) = chain(queried(flow.from_frame(text), cut, end), flow)

    assert isinstance(operator, SplitTextOperator)
    assert operator.process(text).equals(queried(text.lazy(), cut, end).collect())


@given(
    batches=st.lists(ROWS, min_size=1, max_size=3),
    cut=CUTS,
    end=st.sampled_from(["", "filter"]),
    counted=st.sampled_from([pl.len(), pl.col("piece").count()]),
)
def test_counts_of_pieces_are_those_of_polars(
    batches: list[list[str | None]], cut: pl.Expr, end: str, counted: pl.Expr
) -> None:
    """Text in ASCII is counted in place, other text and nulls beside it."""
    frames = [pl.DataFrame({"text": rows}, {"text": pl.String}) for rows in batches]
    flow = ms.Flow("count")
    pieces = queried(flow.from_frame(frames[0]), cut, end)
    counts = pieces.group_by("piece").agg(counted.alias("n"))
    (operator,) = chain(counts, flow)
    assert isinstance(operator, CountTokensOperator)

    for frame in frames:
        assert len(operator.process(frame)) == 0
    parts: list[Any] = list(operator.finish())

    wanted = queried(pl.concat(frames).lazy(), cut, end).collect()
    expected = wanted.group_by("piece").agg(counted.alias("n"))
    empty = pl.DataFrame(schema={"piece": pl.String, "n": pl.Int64})
    sent = pl.concat(
        [empty, *(pl.DataFrame(p.rows(), empty.schema, orient="row") for p in parts)]
    )
    found = sent.group_by("piece").agg(pl.col("n").sum().cast(expected.schema["n"]))
    assert found.sort("piece").equals(expected.sort("piece"))


@pytest.mark.parametrize(
    "cut",
    [
        TEXT.str.extract_all("a+b"),
        TEXT.str.extract_all(r"\w"),
        TEXT.str.extract_all(r"(?i)[a-z]+"),
        TEXT.str.extract_all(TEXT),
        TEXT.str.split("ab"),
        TEXT.str.split("a"),
        TEXT.str.split(" ", inclusive=True),
        TEXT.str.to_uppercase().str.split(" "),
        TEXT.str.split(" ").list.unique(),
    ],
)
def test_other_expressions_are_left_to_polars(cut: pl.Expr) -> None:
    """What is not surely the same is not guessed at."""
    flow = ms.Flow("cut")
    frame = flow.from_frame(pl.DataFrame({"text": ["ab b"]}))
    (operator,) = chain(queried(frame, cut, ""), flow)

    assert not isinstance(operator, SplitTextOperator)


def test_a_column_may_be_cut_in_place() -> None:
    """`with_columns` is as good as `select` where there is no other column."""
    flow = ms.Flow("cut")
    frame = flow.from_frame(pl.DataFrame({"text": ["a b"], "n": [1]}))
    alone = frame.select("text").with_columns(TEXT.str.split(" ")).explode("text")
    beside = frame.with_columns(TEXT.str.split(" ")).explode("text")
    alone.collect()
    beside.collect()

    lines = flow.explain(workers=1).splitlines()

    told = [line for line in lines if "(as tokens)" in line]
    assert len(told) == 1
    assert "with_columns (as tokens) -> explode (as tokens)" in told[0]
