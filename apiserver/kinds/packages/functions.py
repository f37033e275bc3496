"""Check the functions of a declaration: their signatures, that they return at once, and the feature gates that they use.

Sluice calls them in the middle of a request, where a wrong signature is a 500 and a coroutine is never awaited.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from apiserver.schema.featuregate import Gate


def wrong(function: Callable[..., Any], *arguments: str, returns: bool = True) -> Iterator[str]:
    """Yield why a function cannot be called with these positional arguments. Without `returns` it is called for its effect."""
    called = function if inspect.isroutine(function) else vars(type(function)).get("__call__", function)
    if any(map(inspect.iscoroutinefunction, (function, called))) or inspect.isasyncgenfunction(called):
        yield "it is a coroutine, which nobody awaits"
    if not returns and inspect.isgeneratorfunction(called):
        yield "it is a generator, whose body nobody runs"
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # some built-in functions have no signature
    try:
        signature.bind(*arguments)
    except TypeError:
        yield f"it is called with ({', '.join(arguments)}), and takes {signature}"


_HOUSE = __name__.partition(".")[0]


def gates(function: Callable[..., Any]) -> set[Gate]:
    """Return the feature gates that a function of a package names, directly or through functions of that package. Functions of Sluice are
    not searched."""
    package = _package(inspect.unwrap(getattr(function, "func", function)))
    found: set[Gate] = set()
    if package == _HOUSE:
        return found
    seen: set[CodeType] = set()
    left: list[Any] = [function]
    while left:
        one = inspect.unwrap(left.pop())
        one = getattr(one, "func", one)
        if isinstance(one, Gate):
            found.add(one)
        elif isinstance(one, FunctionType) and one.__code__ not in seen and _package(one) == package:
            seen.add(one.__code__)
            left += _named(one)
    return found


def _package(function: Any) -> str:
    return str(getattr(function, "__module__", "")).partition(".")[0]


def _named(function: FunctionType) -> Iterator[Any]:
    """Yield the objects that the code of a function names: globals, attributes of modules, and the contents of its closure."""
    names = set(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        yield value
        if isinstance(value, ModuleType):
            yield from (vars(value).get(attribute) for attribute in names)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
