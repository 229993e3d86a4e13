"""What of Polars looks at one row at a time, in every argument that it can take.

A function that is not in this table is refused, so a function that a new Polars brings is
refused until somebody has looked at it.  Names are those of the trees that Polars writes
as JSON; ``Boolean.IsIn`` is ``{"Boolean": {"IsIn": ...}}``.

Nothing here imports Polars, and nothing here knows what to use instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.columns.expressions import Tree

__all__ = [
    "ELEMENT_WISE",
    "LENGTHENING",
    "OPERATORS",
    "WHOLE",
    "function_name",
    "is_constant",
    "is_promised",
]

_NAMES = {
    "": """
        Abs AsList AsStruct Atan2 Ceil Clip Coalesce Cut Erf Erfc Exp FillNull Floor Hash
        Log Log1p MaxHorizontal MeanHorizontal MinHorizontal Negate Reinterpret RepeatBy
        Replace ReplaceStrict Round RoundSF SearchSorted SetSortedFlag Sign SumHorizontal
        ToPhysical Truncate
    """,
    "ArrayExpr": """
        ArgMax ArgMin Concat Contains CountMatches Dot Get Join Length Max Mean Median Min
        Shift Sort Std Sum ToList ToStruct Var
    """,
    "Bin": "Intervals",
    "BinaryExpr": """
        Base64Decode Base64Encode Contains EndsWith Get Head HexDecode HexEncode
        Reinterpret Size Slice StartsWith Tail
    """,
    "Bitwise": """
        CountOnes CountZeros LeadingOnes LeadingZeros TrailingOnes TrailingZeros
    """,
    "Boolean": """
        AllHorizontal AnyHorizontal IsBetween IsClose IsFinite IsIn IsInfinite IsNan
        IsNotNan IsNotNull IsNull Not
    """,
    "Business": "AddBusinessDay BusinessDayCount IsBusinessDay",
    "Categorical": "EndsWith LenBytes LenChars Physical Slice StartsWith",
    "Extension": "Storage To",
    "FillNullWithStrategy": "One Zero",
    "ListExpr": """
        ArgMax ArgMin Concat Contains CountMatches Diff DropNulls Gather GatherEvery Get
        Join Length Max Mean Median Min SetOperation Shift Slice Sort Std Sum ToArray ToMap
        ToStruct Var
    """,
    "MapExpr": "ContainsKey Entries Get Keys Length Values",
    "Pow": "Cbrt Generic Sqrt",
    "Range": "DateRanges DatetimeRanges IntRanges LinearSpaces TimeRanges",
    "StringExpr": """
        Base64Decode Base64Encode ConcatHorizontal Contains ContainsAny CountMatches
        EndsWith EscapeRegex Extract ExtractAll ExtractGroups ExtractMany Find FindMany
        Format Head HexDecode HexEncode JsonDecode JsonPathMatch LenBytes LenChars
        Lowercase Normalize PadEnd PadStart Replace ReplaceMany Reverse Slice Split
        SplitExact SplitN SplitRegex StartsWith StripChars StripCharsEnd StripCharsStart
        StripPrefix StripSuffix Strptime Tail Titlecase ToDecimal ToInteger Uppercase ZFill
    """,
    "StructExpr": """
        Drop FieldByName JsonEncode MapFieldNames PrefixFields RenameFields SelectFields
        SuffixFields
    """,
    "TemporalExpr": """
        BaseUtcOffset CastTimeUnit Century Combine ConvertTimeZone DSTOffset Date
        DatetimeFunction Day DaysInMonth Duration Hour IsLeapYear IsoYear Microsecond
        Millennium Millisecond Minute Month MonthEnd MonthStart Nanosecond OffsetBy
        OrdinalDay Quarter Replace ReplaceTimeZone Round Second Time TimeStamp ToString
        TotalDays TotalHours TotalMicroseconds TotalMilliseconds TotalMinutes
        TotalNanoseconds TotalSeconds Truncate Week WeekDay Year
    """,
    "Trigonometry": """
        ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Cos Cosh Cot Degrees Radians Sin Sinh
        Tan Tanh
    """,
}
ELEMENT_WISE = frozenset(
    f"{group}.{name}" if group else name
    for group, names in _NAMES.items()
    for name in names.split()
)
"""Functions that give one value for every row and look at no other."""

WHOLE = {
    "ArrayExpr.CountMatches": (1,),
    "Boolean.IsIn": (1,),
    "Business.AddBusinessDay": (2,),
    "Business.BusinessDayCount": (2,),
    "Business.IsBusinessDay": (1,),
    "ListExpr.CountMatches": (1,),
    "Replace": (1, 2),
    "ReplaceStrict": (1, 2),
    "SearchSorted": (0,),
    "StringExpr.ContainsAny": (1,),
    "StringExpr.ExtractMany": (1,),
    "StringExpr.FindMany": (1,),
    "StringExpr.Replace": (1,),
    "StringExpr.ReplaceMany": (1, 2),
}
"""Arguments that are looked at as a whole, so they must be constant."""

LENGTHENING = frozenset({"ArrayExpr.Explode", "DropNans", "DropNulls"})
"""Functions of one row at a time that give any number of values for it."""

_SIGNS = """
    And Eq EqValidity FloorDivide Gt GtEq LogicalAnd LogicalOr Lt LtEq Minus Modulus
    Multiply NotEq NotEqValidity Or Plus TrueDivide TruncDivide Xor
"""
OPERATORS = frozenset(_SIGNS.split())
"""The operators that stand between two values of a row."""

_GROUPS = frozenset(_NAMES) - {"", "Bin", "FillNullWithStrategy"}
_VARYING = frozenset({"Column", "Field", "PipeWithDtype", "Selector"})
_LEAVES = frozenset({"Literal", "function", "options", "dtype", "sort_options"})


def function_name(function: Tree) -> str:
    """Return what a function is called in the table.

    Examples
    --------
    >>> function_name({"Boolean": {"IsIn": {"nulls_equal": False}}})
    'Boolean.IsIn'
    """
    if isinstance(function, str):
        return function
    ((name, body),) = function.items()
    if name in _GROUPS:
        return f"{name}.{_guessing(_first(body), body)}"
    if name in ("Bin", "Random"):
        return f"{name}.{_first(body['method'])}"
    if name == "FillNullWithStrategy":
        return f"{name}.{_first(body)}"
    return str(name)


def is_promised(body: Tree) -> bool:
    """Whether whoever wrote a function has said that it is element-wise."""
    flags = body["flags"]
    return "ROW_SEPARABLE" in flags and "LENGTH_PRESERVING" in flags


def is_constant(tree: Tree) -> bool:
    """Whether an expression is the same in every batch, whatever rows are in it."""
    if isinstance(tree, list):
        return all(map(is_constant, tree))
    if not isinstance(tree, dict):
        return tree not in ("Len", "Element")
    for node, body in tree.items():
        if node in _VARYING or (node == "Function" and _is_random(body)):
            return False
        inside = body[0] if node == "Alias" else body
        if node not in _LEAVES and not is_constant(inside):
            return False
    return True


def _first(body: Tree) -> str:
    return body if isinstance(body, str) else str(next(iter(body)))


def _guessing(name: str, body: Tree) -> str:
    """Tell reading times without a format apart: it guesses one from the first text."""
    if name == "Strptime" and body[name][1]["format"] is None:
        return "StrptimeGuessed"
    return name


def _is_random(function: Tree) -> bool:
    return "Random" in function["function"]
