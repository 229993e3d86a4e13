"""Learn from examples whether a message is wanted.

What it shows: gradient descent as a `cycle` over a data frame, which ends when the weights
hardly move any more; `show=` puts the size of the last step into the progress line.

    millstream run examples/logistic_regression.py --on local --workers 2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

TRUE_WEIGHTS = np.array([2.0, -1.0, 0.5])
EXAMPLES, RATE, ENOUGH = 20_000, 2.0, 1e-3


@dataclass(frozen=True)
class Model:
    """Weights, and how far the last step moved them."""

    weights: np.ndarray
    step: float = 1.0


def labelled() -> pl.DataFrame:
    """Return examples with labels that the true weights make likely."""
    rng = np.random.default_rng(7)
    features = rng.normal(0, 1, (EXAMPLES, 3))
    chance = 1 / (1 + np.exp(-features @ TRUE_WEIGHTS))
    wanted = (rng.uniform(size=EXAMPLES) < chance).astype(float)
    return pl.DataFrame(np.column_stack([features, wanted]), schema=[*"abc", "wanted"])


def gradient(model: ms.RoundState[Model]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a function that says how the weights should move for some examples."""

    def of(rows: pl.DataFrame) -> pl.DataFrame:
        features, wanted = rows.select(*"abc").to_numpy(), rows["wanted"].to_numpy()
        guessed = 1 / (1 + np.exp(-features @ model.value.weights))
        return pl.DataFrame(
            [(wanted - guessed) @ features], schema=[*"abc"], orient="row"
        )

    return of


def stepped(model: Model, gradients: pl.DataFrame) -> Model:
    """Return the weights after a step."""
    step = RATE * gradients.sum().to_numpy()[0] / EXAMPLES
    return Model(model.weights + step, float(np.abs(step).max()))


flow = ms.Flow("logistic-regression")
learned = (
    flow.from_frame(labelled())
    .cycle(
        Model(np.zeros(3)),
        lambda rows, model: rows.map_batches(
            gradient(model), schema=dict.fromkeys("abc", pl.Float64)
        ),
        stepped,
        until=lambda model: model.step < ENOUGH,
        show=lambda model: model.step,
    )
    .collect()
)

if __name__ == "__main__":
    flow.run()
    print("weights", " ".join(f"{w:.1f}" for w in learned.result()[0].weights))
