"""Recursion without Python's stack, for what hostile texts nest deeply."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(task: Generator[Generator[Any, Any, Any], Any, Result]) -> Result:
    """What a generator returns that yields a generator wherever a function would call a function, and is sent its result.

    An exception ends it all: no task is given the errors of another.
    """
    stack: list[Generator[Any, Any, Any]] = [task]
    value: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(value))
            value = None
        except StopIteration as done:
            stack.pop()
            value = done.value
    result: Result = value
    return result
