"""Recurse without Python's stack, for deeply nested values of hostile texts."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

# A generator that yields another one in the place of a function call, receives its result, and returns its own.
Task = Generator[Any, Any, Any]


def run(task: Task) -> Any:
    """Run a task and return its result. An exception ends all tasks: none receives the error of another."""
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
