"""The content of a CustomResourceDefinition that can be served.

Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.schema.structural import Structural


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """An additional printer column. `json_path` is as written: `.spec.replicas`."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """The paths of the scale subresource, as written. `selector` is "" without one."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DefinedVersion:
    """One version of a definition.

    * `deprecation` is the text of its warning, None for the text of kube-apiserver. It counts where `deprecated` is True.
    * `columns` are empty where the definition names none.
    * `selectable` are JSON paths as written: `.spec.color`.
    """

    name: str
    served: bool
    storage: bool
    schema: Structural
    deprecated: bool = False
    deprecation: str | None = None
    columns: Sequence[PrinterColumn] = ()
    selectable: Sequence[str] = ()
    status: bool = False
    scale: ScalePaths | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """One CustomResourceDefinition.

    * `webhook` is `spec.conversion.webhook` as JSON for the strategy Webhook; None for None.
    * `stored_versions` are those of `status`, where the file has it.
    * `source` is the whole document as JSON, with defaults.
    """

    name: str
    group: str
    kind: str
    list_kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    versions: Sequence[DefinedVersion]
    webhook: Mapping[str, Any] | None = None
    stored_versions: tuple[str, ...] = ()
    source: Mapping[str, Any]

    @property
    def storage(self) -> DefinedVersion:
        """The version in which objects are stored."""
        return next(version for version in self.versions if version.storage)
