"""What a Spark DataFrame reads, in words that a later run of the job can be compared with.

Spark's analyzed plan names the inputs of a DataFrame: files, tables, and the format and
options of a stream.  What is done to their rows is no part of it, as for every other
source: a filter may change while a job goes on.  Nor are the options which say how much is
read at once, where a new query begins, and by whose right.

The plan is found behind the DataFrame of a session of this process; a Spark Connect
client has none, and its inputs cannot be known.  Nothing here imports pyspark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.credentials import shown, without_credentials
from millstream.observe.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["inputs_of", "options_in_words", "rows_in_words"]

_log = logger("connectors")

_FREE_OPTIONS = re.compile(r"(?i)(max|min|starting|ending|failOn)|.*\.")
"""Limits, beginnings, what to do about losses, settings of a client."""

_SECRET_OPTIONS = re.compile(
    r"(?i)secret|passw|pwd|token|access.?key|api.?key|sasl|jaas|credential|connection"
)
_FILES = "FileSource["


def inputs_of(frame: DataFrame) -> str:
    """Return in words what a DataFrame reads; "" if nobody can tell.

    Parameters
    ----------
    frame
        A Spark DataFrame, bounded or streaming.
    """
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return ""
    try:
        leaves = plan.queryExecution().analyzed().collectLeaves()
        found = [_leaf(leaf, frame.sparkSession) for leaf in _items(leaves)]
    except Exception as error:  # noqa: BLE001 - another Spark may have another plan
        reason = without_credentials(str(error).partition("\n")[0])
        _log.info("Spark does not tell what a DataFrame reads (%s)", reason)
        return ""
    return " and ".join(found)


def _leaf(leaf: JavaObject, session: SparkSession) -> str:
    """Return in words what a leaf of a plan reads."""
    kind = str(leaf.getClass().getSimpleName())
    if kind == "StreamingRelation":
        return _stream(leaf, session)
    return _LEAVES.get(kind, _unknown)(leaf)


def _unknown(_leaf: JavaObject) -> str:
    """Tell of rows of the program, and of what another Spark may call otherwise."""
    return "rows that Spark has no name for"


def _stream(leaf: JavaObject, session: SparkSession) -> str:
    """Tell of a stream of the first kind of sources: files, and old connectors."""
    source, name = leaf.dataSource(), str(leaf.sourceName())
    pairs = _pairs(source.options())
    if not name.startswith(_FILES):
        return f"the stream {name}{options_in_words(pairs)}"
    options = options_in_words(_but_paths(pairs))
    path = _qualified(name.removeprefix(_FILES).removesuffix("]"), session)
    return f"the {source.className()} files of {shown(path)}{options}"


def _stream_of_table(leaf: JavaObject) -> str:
    """Tell of a stream of the second kind of sources, which are tables."""
    options = options_in_words(dict(leaf.extraOptions().asCaseSensitiveMap()).items())
    name = leaf.identifier()
    if name.isDefined():
        return f"the table {name.get().toString()}{options}"
    return f"the stream {leaf.sourceName()}{options}"


def _relation(leaf: JavaObject) -> str:
    """Tell of a bounded relation: a table of the catalog, or files."""
    table = leaf.catalogTable()
    if table.isDefined():
        return f"the table {table.get().identifier().unquotedString()}"
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return _unknown(leaf)
    paths = _items(relation.location().rootPaths())
    options = options_in_words(_but_paths(_pairs(relation.options())))
    places = sorted(shown(str(path.toString())) for path in paths)
    return f"the files of {', '.join(places)}{options}"


def _relation_of_table(leaf: JavaObject) -> str:
    return f"the table {leaf.table().name()}"


def _range(leaf: JavaObject) -> str:
    return f"the numbers from {leaf.start()} to {leaf.end()} by {leaf.step()}"


_LEAVES: dict[str, Callable[[JavaObject], str]] = {
    "StreamingRelationV2": _stream_of_table,
    "LogicalRelation": _relation,
    "DataSourceV2Relation": _relation_of_table,
    "Range": _range,
}
"""By the names of Spark's classes; their packages have changed between versions."""


def _qualified(path: str, session: SparkSession) -> str:
    """Return a path with its scheme and from the root, however it was spelt."""
    assert session._jvm is not None, "a session of this process"  # noqa: SLF001
    made = session._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001 - no public way
    settings = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    return str(made.getFileSystem(settings).makeQualified(made).toString())


def _pairs(options: JavaObject) -> Iterable[tuple[str, str]]:
    """Return the entries of an option map of Scala's."""
    pairs = _items(options.toSeq())
    return [(str(pair._1()), str(pair._2())) for pair in pairs]  # noqa: SLF001 - Scala's


def _but_paths(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what files are told by anyway, in one spelling."""
    return [pair for pair in pairs if pair[0].lower() not in {"path", "paths"}]


def _items(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(place) for place in range(sequence.size())]


def rows_in_words(what: str, inputs: str, schema: Mapping[str, object]) -> str:
    """Return the identity of a source by what Spark reads; "" if that is not known.

    Examples
    --------
    >>> rows_in_words("a query over", "the stream rate", {"value": "Int64"})
    'a query over the stream rate, as (value: Int64)'
    >>> rows_in_words("a query over", "", {"value": "Int64"})
    ''
    """
    columns = ", ".join(f"{name}: {kind}" for name, kind in schema.items())
    return f"{what} {inputs}, as ({columns})" if inputs else ""


def options_in_words(options: Iterable[tuple[str, str]]) -> str:
    """Return the options that say what is read, without secrets.

    Examples
    --------
    >>> options_in_words([("subscribe", "a"), ("maxOffsetsPerTrigger", "9")])
    ' (subscribe=a)'
    >>> options_in_words([("kafka.bootstrap.servers", "here"), ("token", "x")])
    ''
    >>> options_in_words([("url", "jdbc:postgresql://bob:hunter2@db/shop?ssl=1")])
    ' (url=jdbc:postgresql://db/shop)'
    """
    told = sorted(
        f"{name}={shown(value)}"
        for name, value in options
        if not _FREE_OPTIONS.match(name) and not _SECRET_OPTIONS.search(name)
    )
    return f" ({', '.join(told)})" if told else ""
