"""Parse the flags about releases of Kubernetes: feature gates and the emulated version, with kube-apiserver's messages."""

from __future__ import annotations

import re

from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import Release
from apiserver.config.flags import Partly
from kubetext import strconv
from kubetext.quoting import go_quote

KUBE = "kube"
"""The component of a gate without a component name (component-base `compatibility/registry.go`, DefaultKubeComponent)."""


def gates(text: str) -> dict[str, bool]:
    """Parse `Gate=true` pairs, each optionally after its component. Upstream: `featuregate/feature_gate.go` Set."""
    switched: dict[str, bool] = {}
    components, errors = set(), []
    for pair in filter(None, text.split(",")):
        before, colon, after = pair.partition(":")
        component, setting = (before.strip(), after.strip()) if colon else ("", pair.strip())
        components.add(component)
        name, equals, value = (part.strip() for part in setting.partition("="))
        if component not in ("", KUBE):
            errors.append(f"component not registered: {component}")
        elif setting and not equals:
            errors.append(f"missing bool value for {name}")
        elif setting:
            try:
                switched[name] = strconv.parse_bool(value)
            except ValueError as e:
                errors.append(f"invalid value of {name}={value}, err: {e}")
    if components >= {"", KUBE}:
        errors.append("set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use")
    if errors:
        raise Partly(switched, errors)
    return switched


_GENERIC_VERSION = re.compile(r"\s*v?([0-9]+(?:\.[0-9]+)*)")


def release(text: str) -> Release | None:
    """Parse the release to emulate: `1.36`, optionally after its component. Upstream: component-base `compatibility/registry.go`
    toVersionMap, `compatibility/version.go` Validate."""
    if not text:
        return None
    found: Release | None = None
    for entry in text.split(","):
        before, equals, after = entry.partition("=")
        component, asked = (before.strip(), after.strip()) if equals else (KUBE, entry)
        numbers = _components(asked)
        shown = ".".join(map(str, numbers))
        if any(numbers[2:3]):
            raise ValueError(f"patch version not allowed, got: {component}={shown}")
        if component != KUBE:
            raise ValueError(f"component not registered: {component}")
        asked_for = Release(*numbers[:2])
        if found is not None:
            raise ValueError(f"duplicate version flag, {KUBE}={found} and {KUBE}={shown}")
        if asked_for not in releases.SUPPORTED:
            raise ValueError(f"emulation version {shown} is not between [{releases.SUPPORTED[0]}, {releases.NEWEST}]")
        found = asked_for
    return found


def _components(text: str) -> list[int]:
    """Return the numbers of a version. Upstream: apimachinery `pkg/util/version/version.go` ParseGeneric."""
    match = _GENERIC_VERSION.match(text)
    if match is None:
        raise ValueError(f"could not parse {go_quote(text)} as version")
    parts = match[1].split(".")
    if len(parts) < 2:
        raise ValueError(f"illegal version string {go_quote(text)}")
    if parts[0].startswith("0") and parts[0] != "0":
        raise ValueError(f"illegal zero-prefixed version component {go_quote(parts[0])} in {go_quote(text)}")
    for part in parts:
        if int(part[:21]) >= 1 << 64:
            why = f'strconv.ParseUint: parsing "{part}": value out of range'
            raise ValueError(f"illegal non-numeric version component {go_quote(part)} in {go_quote(text)}: {why}")
    return [int(part) for part in parts]
