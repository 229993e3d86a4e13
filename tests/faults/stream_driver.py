"""A driver that reads a stream of Spark's until a file tells it to end.

Prints the process ids of its workers once they run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import millstream as ms


def main() -> None:
    directory, workers = Path(sys.argv[1]), int(sys.argv[2])
    builder = SparkSession.builder.master("local[4]")
    for key in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(key, "false")
    spark = builder.getOrCreate()
    rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    flow = ms.Flow("stream")
    frame = flow.from_spark_stream(rate, trigger="100ms").select("value")
    # Rows are held back over a cut or two, and not for the minute of the default.
    frame.write_jsonl(directory / "out", roll_every="500ms")
    state = directory / "state"
    job = flow.start(spark=spark, workers=workers, state=state, snapshot_every="200ms")
    while job.status() == "starting":
        job.wait(0.05)
    print(json.dumps(job.worker_pids()), flush=True)  # noqa: T201 - the test reads it
    while not job.wait(0.1):
        if (directory / "end").exists():
            for query in spark.streams.active:
                query.stop()


if __name__ == "__main__":
    main()
