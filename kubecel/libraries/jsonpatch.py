"""`jsonpatch.escapeKey`: escape a key for the path of a JSON patch.

Upstream: kubernetes/apiserver `pkg/cel/library/{jsonpatch,cost}.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubecel.check.declarations import CallEstimate, Estimator, Function, Library, Node
from kubecel.libraries.costs import TRAVERSAL, Cost, function, traversal
from kubecel.values.types import STRING
from kubecel.values.values import Value, size


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    length = estimator.size(arguments[0])
    return CallEstimate(length.scaled(TRAVERSAL), length)


def _charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[0]))


LIBRARY = Library(
    name="kubernetes.jsonpatch",
    functions=(
        Function(
            "jsonpatch.escapeKey",
            (function("string_jsonpatch_escapeKey_string", (STRING,), STRING, _escape, cost=Cost(_estimate, _charge)),),
        ),
    ),
)
