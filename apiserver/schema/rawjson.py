"""Values of raw JSON members (`types.RawJSON`) in decoded objects: their text, and what it means.

Nobody else looks inside such a value. Upstream: kubernetes/apimachinery `pkg/runtime/extension.go`,
`pkg/apis/meta/v1/types.go` (FieldsV1).
"""

from __future__ import annotations

from typing import Any

from apiserver.schema import canonical


def of(text: bytes) -> Any:
    """The value of a member whose JSON text this is. Raises ValueError."""
    return canonical.decode(text)


def text(value: Any) -> bytes:
    """The JSON of a member's value."""
    return canonical.encode_raw(value)


def parsed(value: Any) -> Any:
    """What the JSON of a member's value means: dicts, lists, text, numbers, booleans, None. It is not to be changed."""
    return value
