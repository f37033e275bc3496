"""The parts of a custom resource: functions made of a definition, which generic code calls.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery.releases import Release
from apiserver.schema.structural import Structural
from structuredmerge.types import Type as MergeType

Object = dict[str, Any]
"""As `schema.resource.Object`."""


def _always(release: Release) -> bool:
    return True


def _nothing(release: Release) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Custom:
    """Mark a version of a kind as a custom resource: a structural schema describes its objects, besides metadata.

    The functions work on decoded objects, and change their argument.

    * `prune(obj, unknown)` drops the members that the schema does not know, and appends their paths to `unknown`, if it is a list.
    * `fill(obj)` drops nulls that are not allowed, and fills in defaults. `default(obj)` only fills in defaults, which is the same for an
      object without nulls. Both return whether they changed anything.
    * `coerce(obj, unknown)` makes the metadata of embedded resources regular, and returns the first error, "" without one. It reports what
      it drops as `prune` does.
    * `convert(obj)` takes an object of another version to this one, in place: it loses what this version does not know. Where a webhook
      converts, it must have done so before. Raises ValueError for metadata of embedded resources that a webhook spoiled.
    * `adopt(value)` returns stored bytes as the definition reads them: pruned, with defaults, by the schema of the version that the value
      names. The same object if nothing changes. `versions` are those of the definition.
    * `has_rules`: the schema has rules.
    * `prepare(release)` compiles what writes need in a release. It may take a second, so it belongs into a thread. `ready(release)` returns
      whether that was done; until then, judging may take long.
    * `merge_type(metadata)` returns the type for structured merge, from that of ObjectMeta.
    * `published(own, v2=…)` returns the schema of OpenAPI. `own` are the schemas of apiVersion, kind and metadata.
    * `indexed` are the selectable fields of every version. `fields(obj)` returns their values as texts, from an object of which only the
      members `fields_in` are decoded.
    * `scale` is the scale subresource, if there is one.
    * `served`: the version has endpoints.
    * `webhook` converts objects between versions; None where they differ by their schemas only.
    """

    schema: Structural
    prune: Callable[[Object, list[str] | None], None]
    fill: Callable[[Object], bool]
    default: Callable[[Object], bool]
    coerce: Callable[[Object, list[str] | None], str]
    adopt: Callable[[bytes], bytes]
    merge_type: Callable[[MergeType], MergeType]
    published: Callable[..., dict[str, Any]]
    indexed: Mapping[str, str]
    fields: Callable[[Object], tuple[str, ...]]
    fields_in: frozenset[str]
    convert: Callable[[Object], Object]
    versions: frozenset[str] = frozenset()
    has_rules: bool = False
    prepare: Callable[[Release], None] = _nothing
    ready: Callable[[Release], bool] = _always
    scale: Scale | None = None
    served: bool = True
    webhook: ConversionWebhook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionWebhook:
    """The webhook of a definition. `client_config` says where it is, as in the definition. `review_versions` are those that it accepts,
    the preferred one first."""

    definition: str
    client_config: Mapping[str, Any]
    review_versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale subresource: ways to the members that it shows, from the root of the object. `selector` is empty without one."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()
