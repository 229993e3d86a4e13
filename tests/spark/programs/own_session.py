"""A driver without a session: Millstream makes one per run and stops it again."""

from __future__ import annotations

import json
import os
from typing import Any

from pyspark import SparkContext

import millstream as ms


def sizes(**options: Any) -> list[int]:
    flow = ms.Flow("sizes")
    found = flow.from_parallel(lambda rank, size: [size]).collect()
    flow.run(**options)
    return found.result()


def is_spark_up() -> bool:
    return SparkContext._active_spark_context is not None


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = "/no/such/python"
    answer: dict[str, Any] = {"default": sizes(), "is_up_after_first": is_spark_up()}
    answer["three"] = sizes(master="local[3]")
    flows = [ms.Flow("first"), ms.Flow("second")]
    handles = [flow.from_iterable(range(3)).collect() for flow in flows]
    jobs = [flow.start(master="local[2]", workers=1) for flow in flows]
    for job in jobs:
        job.wait()
    answer["at_once"] = [handle.result() for handle in handles]
    answer["is_up_at_the_end"] = is_spark_up()
    answer["python"] = os.environ["PYSPARK_PYTHON"]
    print(json.dumps(answer))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
