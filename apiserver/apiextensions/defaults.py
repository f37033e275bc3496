"""Fill in what kube-apiserver fills into a CustomResourceDefinition.

Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/v1/defaults.go`.
"""

from __future__ import annotations

from typing import Any

from kubetext import names as texts

WEBHOOK_PORT = 443


def fill(source: dict[str, Any]) -> None:
    """Fill in the names, the conversion, and the port of its webhook. Changes `source`, which is in the form that `decoding` leaves."""
    spec: dict[str, Any] = source.setdefault("spec", {})
    names: dict[str, Any] = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if kind and not names.get("singular"):
        names["singular"] = texts.lower(kind)
    if kind and not names.get("listKind"):
        names["listKind"] = f"{kind}List"
    conversion: dict[str, Any] = spec.setdefault("conversion", {"strategy": "None"})
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None:
        service.setdefault("port", WEBHOOK_PORT)
