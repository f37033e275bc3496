"""Recorded results of Go's libraries: bytes are kept as Latin-1 text."""

from __future__ import annotations

import json
import pathlib
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


def raw(case: dict[str, Any]) -> bytes:
    return str(case["raw"]).encode("latin-1")
