"""The tags by which types declare validation, as upstream's `+k8s:` tags do. `validation.declarative` reads them.

Upstream: kubernetes/api `*/types.go`, kubernetes/apimachinery `pkg/api/validate/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apiserver.schema.types import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The tags of one member of a struct. A member without a value is only checked for `required`.

    * `update` is the text for a change of the stored value; with `once_set` the member may be set and unset.
    * `limited` applies the limit of the type: elements of a list, bytes of a text. A longer list is one error, and nothing else is checked.
    * `unique` reports repeated elements, by the list's identity. Elements then correspond to stored ones by it.
    * `keys` check the keys of a map, `checks` the value, `items` the elements of a list, `parts` members of a struct that are set.
    * `alone`: no rule of the kind itself refuses the same values, so these tags decide whether an object is valid.
    """

    required: bool = False
    update: str = ""
    once_set: bool = False
    limited: bool = False
    unique: bool = False
    keys: Sequence[Check] = ()
    checks: Sequence[Check] = ()
    items: Sequence[Check] = ()
    parts: Mapping[str, Check] = field(default_factory=dict)
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """The tags of a struct. Exactly one member of `union` has to be set."""

    members: Mapping[str, Member] = field(default_factory=dict)
    union: Sequence[str] = ()
    alone: bool = False


def _same(path: str) -> str:
    return path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Declarations:
    """The tags of all types of an API group, by Go type. Versions with types of their own share the tags of members that they have.

    `normalized` returns the path of an error in the stored version.
    """

    types: Mapping[str, Tags]
    normalized: Callable[[str], str] = _same
