"""The version v1alpha3: v1 under another name. Served only where the operator enables it, as upstream's alpha versions.

Upstream: kubernetes/api `resource/v1alpha3/types.go`.
"""

from __future__ import annotations

from apiserver.resources._rules._formats import MODEL as V1_MODEL
from apiserver.schema.resource import Deprecation, Version
from apiserver.schema.types import Struct
from apiserver.schema.variants import Variant

NAME = "v1alpha3"
MODEL = f"io.k8s.api.resource.{NAME}"

_variant = Variant(of=V1_MODEL, made=MODEL)


def version(shape: Struct, deprecation: Deprecation | None = None) -> Version:
    """Return this version of the kind with the v1 shape."""
    return Version(name=NAME, shape=_variant(shape), home=None, deprecation=deprecation)
