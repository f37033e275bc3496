"""The writer of a change, who becomes the manager of its fields.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/buildmanagerinfo.go`.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from apiserver.fieldmanager.converted import Converted
from apiserver.schema.resource import Resource


class Writer(NamedTuple):
    """A manager with its request. `resource` is the requested version, `now` an RFC 3339 time. `force` takes fields from other managers. An
    object of more than `most` bytes cannot be stored. `converted` has the conversions of a kind that a webhook converts."""

    manager: str
    resource: Resource
    subresource: str
    now: str
    force: bool = False
    most: int = sys.maxsize
    converted: Converted | None = None
