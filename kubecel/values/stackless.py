"""Recursion without Python's stack, for what hostile texts nest deeply."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

# A generator that yields another wherever a function would call a function, is sent its result, and returns its own.
Task = Generator[Any, Any, Any]


def run(task: Task) -> Any:
    """What a task returns. An exception ends it all: no task is given the errors of another."""
    stack: list[Task] = [task]
    value: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(value))
            value = None
        except StopIteration as done:
            stack.pop()
            value = done.value
    return value
