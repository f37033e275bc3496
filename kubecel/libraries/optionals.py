"""Optional values: `optional.of(x)`, `a.?b`, `a[?b]`, `.orValue(x)`.

The program implements them, so only types are declared here.
Upstream: google/cel-go `cel/library.go` optionalLib.
"""

from __future__ import annotations

from kubecel.check.declarations import Function, Library, Overload
from kubecel.parse import macros
from kubecel.values.types import BOOL, DYN, INT, STRING, Type, list_of, map_of, opaque, optional_of, parameter

_K, _V = parameter("K"), parameter("V")
_OPTIONAL, _LIST, _MAP = optional_of(_V), list_of(_V), map_of(_K, _V)
_OPTIONAL_LIST, _OPTIONAL_MAP, _LIST_OF_OPTIONALS = optional_of(_LIST), optional_of(_MAP), list_of(_OPTIONAL)


def _function(name: str, *overloads: Overload) -> Function:
    return Function(name, overloads)


def _overload(overload: str, arguments: tuple[Type, ...], result: Type) -> Overload:
    return Overload(id=overload, arguments=arguments, result=result)


def _member(overload: str, arguments: tuple[Type, ...], result: Type) -> Overload:
    return Overload(id=overload, arguments=arguments, result=result, member=True)


_FUNCTIONS_V1 = (
    _function("optional.of", _overload("optional_of", (_V,), _OPTIONAL)),
    _function("optional.ofNonZeroValue", _overload("optional_ofNonZeroValue", (_V,), _OPTIONAL)),
    _function("optional.none", _overload("optional_none", (), _OPTIONAL)),
    _function("value", _member("optional_value", (_OPTIONAL,), _V)),
    _function("hasValue", _member("optional_hasValue", (_OPTIONAL,), BOOL)),
    _function("or", _member("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL)),
    _function("orValue", _member("optional_orValue_value", (_OPTIONAL, _V), _V)),
    _function("_?._", _overload("select_optional_field", (DYN, STRING), _OPTIONAL)),
    _function(
        "_[?_]",
        _overload("list_optindex_optional_int", (_LIST, INT), _OPTIONAL),
        _overload("optional_list_optindex_optional_int", (_OPTIONAL_LIST, INT), _OPTIONAL),
        _overload("map_optindex_optional_value", (_MAP, _K), _OPTIONAL),
        _overload("optional_map_optindex_optional_value", (_OPTIONAL_MAP, _K), _OPTIONAL),
    ),
    _function(
        "_[_]",
        _overload("optional_list_index_int", (_OPTIONAL_LIST, INT), _OPTIONAL),
        _overload("optional_map_index_value", (_OPTIONAL_MAP, _K), _OPTIONAL),
    ),
)
_FUNCTIONS_V2 = (
    _function("last", _member("list_last", (_LIST,), _OPTIONAL)),
    _function("first", _member("list_first", (_LIST,), _OPTIONAL)),
    _function("optional.unwrap", _overload("optional_unwrap", (_LIST_OF_OPTIONALS,), _LIST)),
    _function("unwrapOpt", _member("optional_unwrapOpt", (_LIST_OF_OPTIONALS,), _LIST)),
)

# Version 1 adds optFlatMap to version 0, and version 2 adds unwrapping of lists and their first and last elements.
# Kubernetes has version 2.
LIBRARY_V1 = Library(
    name="cel.lib.optional",
    functions=_FUNCTIONS_V1,
    types=(opaque("optional_type"),),
    macros=macros.OPTIONAL,
    optional_syntax=True,
)
LIBRARY = Library(
    name="cel.lib.optional",
    functions=_FUNCTIONS_V1 + _FUNCTIONS_V2,
    types=(opaque("optional_type"),),
    macros=macros.OPTIONAL,
    optional_syntax=True,
)
