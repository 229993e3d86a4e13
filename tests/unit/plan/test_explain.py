"""Explaining a plan; the golden programs pin whole texts, this the details."""

from __future__ import annotations

import millstream as ms


def test_one_worker_is_written_in_the_singular() -> None:
    """And its tasks are all on it."""
    flow = ms.Flow("one")
    flow.from_iterable([1]).map(abs).collect()

    text = flow.explain(workers=1)

    assert "tasks on 1 worker\n  worker 0: tasks 0.0, 1.0\n" in text
    assert "channels: 1 within a worker, 0 between workers" in text


def test_given_name_is_shown_with_its_verb() -> None:
    """The reader finds both the name and the method in the program."""
    flow = ms.Flow("names")
    flow.from_iterable([1]).map(abs, name="clean").collect()

    assert "clean (map) <- from_iterable" in flow.explain()


def test_buffer_of_the_flow_is_shown_on_its_edges() -> None:
    """Where rows wait, and for how long."""
    flow = ms.Flow("buffer", buffer=ms.adaptive(16, "5ms"))
    flow.from_iterable([1]).map(abs).collect()

    assert "-> stage 1 by shuffle, adaptive(16, 5ms)" in flow.explain()


def test_label_cannot_break_out_of_its_mermaid_box() -> None:
    """Users may name operators as they like."""
    flow = ms.Flow("quotes")
    flow.from_iterable([1]).map(abs, name='say "]" (twice)').collect()

    assert '["say #quot;]#quot; (twice)"]' in flow.explain(form="mermaid")
