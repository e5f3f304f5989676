"""The expected shape of a result, as a small typed expression.

`latency(dtx) / latency(wait)` is a value: numbers, metrics of named cells, + - * /, min and max. `> 1`,
`between 0.9 and 1.1` and `about 2.5` are tests on it. Both are parsed here into types and evaluated here;
what they mean for a claim is decided in `claims`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import numpy as np
from msgspec import Struct

from labctl.report.judgement.stats import Samples
from labctl.yamlfaults import nearest

METRICS: Mapping[str, str] = {
    "latency": "latency_ms",
    "outcome": "outcome_ms",
    "completion": "completion_ms",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "throughput": "throughput",
    "messages": "messages",
    "bytes": "bytes",
    "drop": "drop",
    "variation": "variation",
    "rate": "rate",
    "event_p50": "event_p50_ms",
    "event_p99": "event_p99_ms",
}
"""Words of the expressions, and the column of a repetition that each means."""
ABOUT = 1.5
"""`about x` accepts what lies between x divided and x multiplied by this."""

Verdict = Literal["holds", "does not hold", "inconclusive"]


class ShapeError(ValueError):
    """An expression or a test that means nothing; the text says what is wrong with it."""


class Constant(Struct, frozen=True):
    value: float


class Metric(Struct, frozen=True):
    metric: str
    cell: str
    """The name that the claim gives to the cell."""


class Binary(Struct, frozen=True):
    operator: str
    left: Expression
    right: Expression


class Extreme(Struct, frozen=True):
    name: Literal["min", "max"]
    parts: tuple[Expression, ...]


Expression = Constant | Metric | Binary | Extreme

_OPERATORS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def parse(text: str, cells: Mapping[str, object]) -> Expression:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise ShapeError(
            f"{text!r} is not an expression; write for example latency(a) / latency(b)"
        ) from None
    return _node(tree.body, cells)


def _node(node: ast.expr, cells: Mapping[str, object]) -> Expression:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return Constant(float(value))
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            return Binary(_OPERATORS[type(operator)], _node(left, cells), _node(right, cells))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, *_] as parts, keywords=[]):
            return Extreme(name, tuple(_node(part, cells) for part in parts))
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=cell)], keywords=[]):
            if name not in METRICS:
                raise ShapeError(f"unknown metric {name!r}; {nearest(name, METRICS)}")
            if cell not in cells:
                raise ShapeError(f"{cell!r} is not among the cells of this claim; {nearest(cell, cells)}")
            return Metric(name, cell)
        case _:
            raise ShapeError(
                f"{ast.unparse(node)!r} has no meaning here; use numbers, metric(cell), + - * /, min, max"
            )


def metrics(expression: Expression) -> Iterator[Metric]:
    match expression:
        case Metric():
            yield expression
        case Binary(left=left, right=right):
            yield from metrics(left)
            yield from metrics(right)
        case Extreme(parts=parts):
            for part in parts:
                yield from metrics(part)


def evaluate(expression: Expression, value_of: Callable[[Metric], Samples]) -> Samples:
    """Of one value or of ten thousand draws at once; a division by nothing gives NaN."""
    match expression:
        case Constant(value=value):
            return np.asarray(value)
        case Metric():
            return value_of(expression)
        case Extreme(name=name, parts=parts):
            choose = np.minimum if name == "min" else np.maximum
            found = [evaluate(part, value_of) for part in parts]
            result = found[0]
            for other in found[1:]:
                result = choose(result, other)
            return result
        case Binary(operator=operator, left=left, right=right):
            return _apply(operator, evaluate(left, value_of), evaluate(right, value_of))


def _apply(operator: str, left: Samples, right: Samples) -> Samples:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(right == 0, math.nan, left / right)


class Test(Struct, frozen=True):
    """What a value must be: strictly between `low` and `high`."""

    text: str
    low: float = -math.inf
    high: float = math.inf

    def accepts(self, value: float) -> bool:
        return self.low < value < self.high

    def judge(self, low: float, high: float) -> Verdict:
        """The rule: a whole interval inside holds, one wholly outside does not, any other decides nothing."""
        if self.low < low and high < self.high:
            return "holds"
        if high <= self.low or low >= self.high:
            return "does not hold"
        return "inconclusive"


_NUMBER = r"(-?\d+(?:\.\d+)?)"


def parse_test(text: str) -> Test:
    words = " ".join(text.split())
    if match := re.fullmatch(rf"> ?{_NUMBER}", words):
        return Test(words, low=float(match[1]))
    if match := re.fullmatch(rf"< ?{_NUMBER}", words):
        return Test(words, high=float(match[1]))
    if match := re.fullmatch(rf"between {_NUMBER} and {_NUMBER}", words):
        low, high = float(match[1]), float(match[2])
        if low >= high:
            raise ShapeError(f"{words!r}: nothing lies between them")
        return Test(words, low, high)
    if match := re.fullmatch(rf"about {_NUMBER}", words):
        middle = float(match[1])
        if middle <= 0:
            raise ShapeError(f"{words!r}: only of a positive number is it clear what is about it")
        return Test(words, middle / ABOUT, middle * ABOUT)
    raise ShapeError(f"{text!r} is no test; write '> 1', '< 1', 'between 0.9 and 1.1' or 'about 2.5'")
