"""Decide which versions and resources are served, from the kinds' declarations and the operator's `--runtime-config`.

Upstream: kubernetes/apiserver `pkg/server/resourceconfig/helpers.go`, `pkg/server/options/api_enablement.go`,
`pkg/server/storage/resource_config.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from apiserver.schema.resource import Resource
from kubetext import strconv
from kubetext.quoting import go_quote

Asked = Mapping[str, str]
"""The operator's values by key: `<group>/<version>`, `<group>/<version>/<resource>` or one of CLASSES. Values are Go's booleans. For the
first two keys "" is true."""

ALL = "api/all"
CLASSES: Mapping[str, Callable[[str], object]] = {
    ALL: lambda version: True,
    "api/ga": re.compile(r"v[0-9]+").fullmatch,
    "api/beta": re.compile(r"v[0-9]+beta[0-9]+").fullmatch,
    "api/alpha": re.compile(r"v[0-9]+alpha[0-9]+").fullmatch,
}
"""Keys for many versions, from weak to strong, and the tests of their versions."""


def errors(asked: Asked, known: Iterable[Resource]) -> Iterator[str]:
    """Yield the errors of the values, given every version of every kind. Texts are upstream's; upstream stops at the first error.

    A server without any resource is refused here; upstream's still has other groups.
    """
    known = tuple(known)
    if asked.get(ALL) == "false" and len(asked) == 1:
        yield f"invalid runtime-config with only {ALL}=false"
    elif known and _clear(asked) and not any(enabled(asked, resource) for resource in known):
        yield "nothing is left to be served"
    versions = {(resource.group, resource.version) for resource in known}
    groups = {group for group, _ in versions}
    yield from (f"invalid value {key}={asked[key]}" for key in CLASSES if asked.get(key, "true") not in _BOOLEANS)
    strange: set[str] = set()
    for key, value in asked.items():
        if key in CLASSES:
            continue
        parts = key.split("/")
        if len(parts) not in (2, 3):
            yield f"runtime-config invalid key {key}"
        elif parts[0] not in groups:
            strange.add(f"{parts[0]}/{parts[1]}")
        else:
            yield from _wrong(key, parts, value, registered=(parts[0], parts[1]) in versions)
    if strange:
        yield f"unknown api groups {','.join(sorted(strange))}"


_BOOLEANS = ("true", "false")


def _clear(asked: Asked) -> bool:
    """Return whether every value is a boolean. With other values the result is unknown."""
    return all(value in _BOOLEANS if key in CLASSES else _boolean(value) is not None for key, value in asked.items())


def _wrong(key: str, parts: Sequence[str], value: str, *, registered: bool) -> Iterator[str]:
    if not registered:
        yield f"group version {parts[0]}/{parts[1]} that has not been registered"
    if value:
        try:
            strconv.parse_bool(value)
        except ValueError as e:
            yield f"invalid value of {key}: {value}, err: {e}"
    resource = parts[2] if len(parts) == 3 else ""
    if resource != resource.lower():
        text = "group/version/resource and resource is always lowercase plural, not"
        yield f"invalid key {key}: {text} {go_quote(resource)}"


def enabled(asked: Asked, resource: Resource) -> bool:
    """Return whether a kind is served in this version. The narrower key wins. Without a key, a version is served in its home."""
    version = f"{resource.group}/{resource.version}"
    for key in (f"{version}/{resource.plural}", version):
        if key in asked:
            return _says_yes(asked[key])
    said = [asked[key] for key, is_in in CLASSES.items() if key in asked and is_in(resource.version)]
    return said[-1] == "true" if said else resource.home in ("", resource.group)


def _says_yes(value: str) -> bool:
    """Return whether the value is true. A value that is not a boolean counts as false, and was reported as an error."""
    return bool(_boolean(value))


def _boolean(value: str) -> bool | None:
    try:
        return not value or strconv.parse_bool(value)
    except ValueError:
        return None
