"""The version v1beta2: v1 under another name.

Upstream: kubernetes/api `resource/v1beta2/types.go`.
"""

from __future__ import annotations

from apiserver.resources._rules._formats import CORE_NAMES, HOME, MODEL
from apiserver.schema.resource import Deprecation, Version
from apiserver.schema.types import Struct
from apiserver.schema.variants import Variant

NAME = "v1beta2"

_variant = Variant(of=MODEL, made=f"io.k8s.api.resource.{NAME}", foreign=CORE_NAMES)


def version(shape: Struct) -> Version:
    """Return this version of the kind with the v1 shape."""
    return Version(name=NAME, shape=_variant(shape), home=HOME, deprecation=Deprecation(since="1.36", removed="1.39"))
