"""Handle the annotation of client-side `kubectl apply`: kubectl's fields move from client-side to server-side apply and back.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/{lastapplied,lastappliedmanager,lastappliedupdater}.go`.
"""

from __future__ import annotations

import json
from typing import Any

from apiserver.apimachinery import meta
from apiserver.codecs.json import rawjson
from apiserver.schema.resource import Object
from structuredmerge.comparison import compare
from structuredmerge.fieldset import fields_of
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import Type
from structuredmerge.validation import validate

KUBECTL = "kubectl"
"""The only manager that this applies to."""
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def applied_before(live: Object, type_: Type) -> Set:
    """Return the fields that kubectl may take over: those of the annotation that still have its values. Empty if they are unknown."""
    text = _annotations(live).get(ANNOTATION)
    if not text or not isinstance(text, str):
        return EMPTY
    try:
        applied = json.loads(text)
    except (ValueError, RecursionError):
        return EMPTY
    if not isinstance(applied, dict) or any(applied.get(name) != live[name] for name in ("apiVersion", "kind")):
        return EMPTY
    if validate(applied, type_) or validate(live, type_):
        return EMPTY
    found = compare(applied, live, type_)
    return fields_of(applied, type_) - found.modified - found.added - found.removed


def keep_up(result: Object, patch: Object) -> Object:
    """Return `result` with an annotation of the applied configuration, if it has one. Without it if the annotations would be too long."""
    annotations = _annotations(result)
    if not annotations.get(ANNOTATION):
        return result
    annotations = {**annotations, ANNOTATION: _configuration(patch)}
    if sum(len(text.encode()) for pair in annotations.items() for text in pair if text) > meta.ANNOTATIONS_BYTES:
        del annotations[ANNOTATION]
    return {**result, "metadata": {**result["metadata"], "annotations": annotations}}


def _annotations(obj: Object) -> dict[str, Any]:
    metadata = obj.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def _configuration(patch: Object) -> str:
    """Return the JSON of an apply patch, without the annotation itself."""
    metadata = patch.get("metadata")
    if isinstance(metadata, dict) and "annotations" in metadata:
        rest = {name: x for name, x in metadata.items() if name != "annotations"}
        if (annotations := metadata["annotations"]) is not None:
            # A null among them is an empty text by then.
            rest["annotations"] = {name: text or "" for name, text in annotations.items() if name != ANNOTATION}
        patch = {**patch, "metadata": rest}
    return rawjson.text(rawjson.made(patch)).decode() + "\n"
