"""The configuration of the plugin in `--admission-control-config-file`: resources that may only be used if a quota covers them.

Upstream: kubernetes/apiserver `pkg/admission/plugin/resourcequota/{config.go,apis/resourcequota/}`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery.errors import GroupResource
from kubetext.quoting import go_quote

KINDS: Mapping[tuple[str, str], str] = {
    ("ResourceQuotaConfiguration", "apiserver.config.k8s.io/v1"): "v1",
    ("Configuration", "resourcequota.admission.k8s.io/v1beta1"): "v1beta1",
    ("Configuration", "resourcequota.admission.k8s.io/v1alpha1"): "v1alpha1",
}
SCHEME = "pkg/runtime/scheme.go:111"
_GO_STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


@dataclass(frozen=True, slots=True)
class Limited:
    """Names of usage by objects of `resource` that need a quota: those that contain one of the texts."""

    resource: GroupResource
    match_contains: tuple[str, ...] = ()


def read(document: Any) -> list[Limited]:
    """Read a decoded document; empty for None. `matchScopes` are ignored, because Sluice's kinds have no scopes.

    Raises ValueError with upstream's text.
    """
    if document is None:
        return []
    package = _version(document)
    _only(document, ("kind", "apiVersion", "limitedResources"), "")
    items = _list(document.get("limitedResources"), "Configuration.limitedResources", f"{package}.LimitedResource")
    found = [_limited(item, f"limitedResources[{i}].", package) for i, item in enumerate(items)]
    missing = [
        f"limitedResources[{i}].resource: Required value" for i, it in enumerate(found) if not it.resource.resource
    ]
    if missing:
        raise ValueError(missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]")
    return found


def _version(document: Any) -> str:
    if not isinstance(document, dict):
        what = f"json: cannot unmarshal {_sort(document)} into Go value of type {_GO_STRUCT}"
        raise ValueError(  # noqa: TRY004 - the readers of the file catch these
            f"couldn't get version/kind; json parse error: {what}"
        )
    kind, api_version = document.get("kind") or "", document.get("apiVersion") or ""
    for member, value in (("Kind", kind), ("apiVersion", api_version)):
        if not value:
            raise ValueError(f"Object '{member}' is missing in '{json.dumps(document, separators=(',', ':'))}'")
    package = KINDS.get((kind, api_version))
    if package is None:
        where = f"for version {go_quote(str(api_version))} in scheme {go_quote(SCHEME)}"
        raise ValueError(f"no kind {go_quote(str(kind))} is registered {where}")
    return package


def _limited(item: Any, at: str, package: str) -> Limited:
    if not isinstance(item, dict):
        raise _mismatch(item, "Configuration.limitedResources", f"{package}.LimitedResource")
    group, resource = (_text(item.get(name), name) for name in ("apiGroup", "resource"))
    texts = _list(item.get("matchContains"), "LimitedResource.limitedResources.matchContains", "string")
    _only(item, ("apiGroup", "resource", "matchContains", "matchScopes"), at)
    return Limited(GroupResource(group, resource), tuple(_text(text, "matchContains") for text in texts))


def _text(value: Any, name: str) -> str:
    if value is not None and not isinstance(value, str):
        raise _mismatch(value, f"LimitedResource.limitedResources.{name}", "string")
    return value or ""


def _list(value: Any, where: str, go: str) -> Sequence[Any]:
    if value is not None and not isinstance(value, list):
        raise _mismatch(value, where, f"[]{go}")
    return value or ()


def _only(found: Mapping[str, Any], members: Collection[str], at: str) -> None:
    unknown = [f'unknown field "{at}{name}"' for name in found if name not in members]
    if unknown:
        raise ValueError(f"strict decoding error: {', '.join(unknown)}")


def _mismatch(value: Any, where: str, go: str) -> ValueError:
    return ValueError(f"json: cannot unmarshal {_sort(value)} into Go struct field {where} of type {go}")


def _sort(value: Any) -> str:
    """Return Go's name for a JSON value's type."""
    for sort, types in (("bool", bool), ("array", list), ("string", str), ("number", (int, float))):
        if isinstance(value, types):
            return sort
    return "object"
