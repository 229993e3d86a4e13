"""How verbs that PySpark and pandas users know are called here."""

from __future__ import annotations

from millstream.api.building import user_location
from millstream.errors import UsageError

__all__ = ["refuse_foreign"]

_AGGREGATED = ".agg(pl.col(...).{0}())"
_ROWS = {
    "aggregateByKey": ".group_by(...).aggregate(...)",
    "coalesce": ".max_parallelism(...)",
    "countByKey": ".group_by(...).count()",
    "distinct": ".unique()",
    "dropDuplicates": ".unique()",
    "flatMap": ".flat_map(...)",
    "flatmap": ".flat_map(...)",
    "flatMapValues": ".flat_map(...) behind key_by",
    "foreach": ".for_each(...)",
    "foreachBatch": ".map_batches(...)",
    "foreachPartition": ".map_batches(...)",
    "groupBy": ".group_by(...)",
    "groupByKey": ".group_by(...)",
    "groupby": ".group_by(...)",
    "head": ".limit(...)",
    "keyBy": ".key_by(...)",
    "mapPartitions": ".map_batches(...)",
    "mapValues": ".map(...) behind key_by",
    "orderBy": ".sort_by(...)",
    "reduceByKey": ".group_by(...).reduce(...)",
    "repartition": ".shuffle()",
    "saveAsTextFile": ".write_text(...)",
    "select": ".map(...), or to_frame(...).select(...)",
    "show": ".collect(), and result() of what it returns after flow.run()",
    "sort": ".sort_by(...)",
    "sortBy": ".sort_by(...)",
    "take": ".limit(...)",
    "toDF": ".to_frame(...)",
    "union": ".merge(...)",
    "unionAll": ".merge(...)",
    "unionByName": ".merge(...)",
    "where": ".filter(...)",
    "withColumn": ".map(...), or to_frame(...).with_columns(...)",
    "withColumns": ".map(...), or to_frame(...).with_columns(...)",
    "withWatermark": ".event_time(...)",
}
_VERBS: dict[str, dict[str, str]] = {
    "Stream": _ROWS,
    "KeyedStream": _ROWS,
    "GroupedStream": _ROWS,
    "Frame": {
        "agg": ".group_by(...).agg(...)",
        "alias": ".rename({...}) for columns, and name= for the operator",
        "apply": ".map_batches(...)",
        "cache": "nothing: every verb may read a frame again",
        "crossJoin": ".join(...) on a column that is the same everywhere",
        "distinct": ".unique()",
        "dropDuplicates": ".unique([...])",
        "drop_duplicates": ".unique([...])",
        "dropna": ".drop_nulls(...)",
        "fillna": ".fill_null(...)",
        "foreachPartition": ".map_batches(...)",
        "groupBy": ".group_by(...)",
        "groupby": ".group_by(...)",
        "isin": ".filter(pl.col(...).is_in([...]))",
        "map_in_pandas": ".map_batches(...)",
        "mapInPandas": ".map_batches(...)",
        "melt": ".unpivot(...)",
        "merge": ".join(...)",
        "orderBy": ".sort(...)",
        "persist": "nothing: every verb may read a frame again",
        "printSchema": "print(frame.schema)",
        "rdd": ".to_rows()",
        "selectExpr": ".select(pl.sql_expr(...))",
        "show": ".limit(...).collect(), and print what its result() is",
        "sort_values": ".sort(...)",
        "subtract": ".join(..., how='anti')",
        "take": ".limit(...)",
        "toDF": ".rename({...})",
        "toPandas": ".collect(), and result().to_pandas()",
        "to_pandas": ".collect(), and result().to_pandas()",
        "unionAll": ".union(...)",
        "unionByName": ".select(...) of the same columns, and .union(...)",
        "where": ".filter(...)",
        "withColumn": ".with_columns(name=...)",
        "withColumnRenamed": ".rename({...})",
        "withColumns": ".with_columns(...)",
        "withWatermark": ".event_time(..., out_of_order=...)",
        "write": ".write_parquet(...), .write_csv(...) or another of .write_*(...)",
    },
    "GroupedFrame": {
        "aggregate": ".agg(...)",
        "applyInPandas": ".agg(ms.frame_aggregate(...)), or .window(...).map_window(...)",
        "avg": _AGGREGATED.format("mean"),
        "count": ".agg(pl.len())",
        "len": ".agg(pl.len())",
        "map_groups": ".agg(ms.frame_aggregate(...)), or .window(...).map_window(...)",
        "pivot": ".agg(...) with one filtered aggregate for each column",
        "size": ".agg(pl.len())",
        **{
            name: _AGGREGATED.format(name)
            for name in ("first", "last", "max", "mean", "min", "n_unique", "sum")
        },
    },
}


def refuse_foreign(owner: str, verb: str) -> None:
    """Refuse a verb that has another name here."""
    instead = _VERBS[owner].get(verb)
    if instead is not None:
        msg = f"`{verb}` at {user_location()} is no verb of a {owner}; use {instead}"
        raise UsageError(msg)
