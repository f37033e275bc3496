"""Word and report the errors of decoding: of bodies and of the results of patches, with those of strict decoding.

The texts are those of kube-apiserver.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/{response,patch,rest}.go`, kubernetes/apimachinery `pkg/runtime/error.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apiserver.apimachinery import errors, fieldpath
from apiserver.apimachinery.errors import GroupKind, StatusError
from apiserver.apimachinery.request import Warnings
from apiserver.kinds.served import Kinds
from apiserver.kinds.type_meta import TypeMeta, Unfit
from apiserver.schema.resource import Resource
from kubetext import quoting

SYNTAX = "couldn't get version/kind; json parse error: "
_SUMMARY = 30
_YAML_REPEATS = "yaml: unmarshal errors:\n"
_CONVERTING = "error converting YAML to JSON: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The parameters for decoding a patch's result. `validation` is Strict, Warn or Ignore. `hurried`: decoding runs on the event loop."""

    resource: Resource
    kinds: Kinds
    now: str
    validation: str
    warnings: Warnings
    hurried: bool = False


class TakesLong(Exception):
    """The result of a long patch is irregular: nothing was done yet, and a thread must decode it."""


def unrecognized(resource: Resource, raw: bytes, why: Exception) -> StatusError:
    """Return the 400 for a body whose kind cannot be read."""
    cut, more = raw[:_SUMMARY], " ..." if len(raw) > _SUMMARY else ""
    shown = cut.decode("utf-8", "replace") if raw[:1] == b"{" else cut.hex()
    summary = f"{shown}{more}" if raw else "<empty>"
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {resource.kind}): {why} ({summary})"
    )


def unhandled(resource: Resource, meta: TypeMeta, why: Exception) -> StatusError:
    """Return the 400 for a body whose kind is known and whose content is wrong."""
    where = f"{meta.kind} in version {quoting.go_quote(meta.version)} cannot be handled as a {resource.kind}"
    return errors.bad_request(f"{where}: {why}")


def unfit(shown: str, why: Exception) -> StatusError:
    """Return the 422 for a patch, which shows the document."""
    return errors.invalid(GroupKind("", ""), "", [fieldpath.invalid("patch", shown, str(why))])


def strict_text(found: Sequence[str]) -> str:
    """Return the text for all errors of strict decoding."""
    return f"strict decoding error: {', '.join(found)}"


def judge(terms: Terms, found: Sequence[str]) -> None:
    """Report the errors of strict decoding. Raises Unfit."""
    if found and terms.validation == "Strict":
        raise Unfit(strict_text(found))
    warn(found, terms.warnings)


def warn(found: Sequence[str], warnings: Warnings) -> None:
    """Add one warning per error. A YAML text is one warning per line."""
    for text in found:
        said = text.removeprefix(_CONVERTING)
        lines = said.removeprefix(_YAML_REPEATS).split("\n") if said.startswith(_YAML_REPEATS) else [text]
        for line in lines:
            warnings.add(line.strip())
