"""What may only be used where a quota covers it: the configuration of the plugin.

Upstream: kubernetes/apiserver `pkg/admission/plugin/resourcequota/apis/resourcequota/types.go`.
"""

from __future__ import annotations

from dataclasses import dataclass

from apiserver.apimachinery.errors import GroupResource


@dataclass(frozen=True, slots=True)
class Limited:
    """Of objects of `resource`, what is called by a name that contains one of the texts."""

    resource: GroupResource
    match_contains: tuple[str, ...] = ()
