"""Whose change it is that fields are owned for.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/buildmanagerinfo.go`.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from apiserver.schema.resource import Resource


class Writer(NamedTuple):
    """The manager, and its request. `resource` is the version that was asked for, `now` an RFC 3339 time; `force` takes fields from
    others. An object of more than `most` bytes cannot be stored."""

    manager: str
    resource: Resource
    subresource: str
    now: str
    force: bool = False
    most: int = sys.maxsize
