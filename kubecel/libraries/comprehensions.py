"""Comprehensions with two variables: `all(k, v, …)`, `exists`, `existsOne`, `transformList`, `transformMap`, `transformMapEntry`.

The program has `cel.@mapInsert` built in, so only types are declared. Upstream: google/cel-go `ext/comprehensions.go`.
"""

from __future__ import annotations

from kubecel.check.declarations import Function, Library, Overload
from kubecel.parse import macros
from kubecel.values.types import map_of, parameter

_K, _V = parameter("K"), parameter("V")
_MAP = map_of(_K, _V)

LIBRARY = Library(
    name="cel.lib.ext.comprev2",
    macros=macros.COMPREHENSIONS,
    functions=(
        Function(
            "cel.@mapInsert",
            (
                Overload(id="@mapInsert_map_key_value", arguments=(_MAP, _K, _V), result=_MAP),
                Overload(id="@mapInsert_map_map", arguments=(_MAP, _MAP), result=_MAP),
            ),
        ),
    ),
)
