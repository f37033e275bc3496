"""Parsers of the values that flags take: text in, a value out. They raise ValueError, or `Partly` with the valid part of a list."""

from __future__ import annotations

import importlib.util
import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from apiserver.config import store_address
from apiserver.config.flags import Partly
from kubetext import durations

LEAST_OBJECT_BYTES, MOST_OBJECT_BYTES = 3 << 19, 8 << 20
"""Range of `--max-object-bytes`, from etcd's limit. A batch, a page and a watch event hold at least one object, so none bounds it."""


def seconds(text: str) -> float:
    value = durations.parse(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def count(text: str) -> int:
    value = integer(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def object_bytes(text: str) -> int:
    value = integer(text)
    if not LEAST_OBJECT_BYTES <= value <= MOST_OBJECT_BYTES:
        raise ValueError(f"must be between {LEAST_OBJECT_BYTES} and {MOST_OBJECT_BYTES}")
    return value


def whole_seconds(text: str) -> float:
    return float(count(text))


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def port(text: str) -> int:
    value = integer(text)
    if not 0 <= value <= 65535:
        raise ValueError(f"{text} is not between 0 and 65535")
    return value


def boolean(text: str) -> bool:
    lower = text.lower()
    if lower in ("true", "t", "1"):
        return True
    if lower in ("false", "f", "0"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_GROUP = re.compile(rf"{_LABEL}(\.{_LABEL})+")


def group(text: str) -> str:
    if len(text) > 253 or not _GROUP.fullmatch(text):
        raise ValueError(f"{text!r} is not an API group: a lower-case DNS name with at least one dot")
    return text


def modules(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names(text, _no_module)))


def _no_module(name: str) -> str:
    if not all(part.isidentifier() for part in name.split(".")):
        return f"{name!r} is not the name of a Python module"
    return "" if importlib.util.find_spec(name.partition(".")[0]) else f"there is no module {name}"


def file(text: str) -> str:
    if text and not Path(text).is_file():
        raise ValueError(f"there is no file {text}")
    return text


def existing(text: str) -> tuple[Path, ...]:
    try:
        return tuple(map(Path, names(text, lambda name: "" if Path(name).exists() else _MISSING.format(name))))
    except Partly as e:
        raise Partly(tuple(map(Path, e.value)), e.args) from None


_MISSING = "there is no file or folder {}"


def names(text: str, wrong: Callable[[str], str] = lambda name: "") -> tuple[str, ...]:
    """Split a list. `wrong` returns the error of an entry, "" if it has none."""
    names = [part.strip() for part in text.split(",")] if text else []
    errors = {name: wrong(name) if name else "has an empty entry" for name in names}
    if any(errors.values()):
        raise Partly(tuple(name for name in names if not errors[name]), list(filter(None, errors.values())))
    return tuple(names)


def pairs(text: str) -> Mapping[str, str]:
    """Parse `key=value` pairs. A key without value has the value "". The last value of a repeated key counts.

    Upstream: kubernetes/component-base `cli/flag/configuration_map.go`.
    """
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {key.strip(): value.strip() for key, _, value in pairs}


def headers(text: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in names(text))


def paths(text: str) -> tuple[str, ...]:
    """Parse paths; a `*` at the end makes a prefix (kubernetes/apiserver `pkg/authorization/path/path.go`)."""
    return names(text, lambda path: _INNER.format(path.removeprefix("/")) if "*" in path[:-1] else "")


_INNER = 'only trailing * allowed in "{}"'


PLUGINS: Mapping[str, bool] = {
    "NamespaceLifecycle": True,
    "NodeRestriction": True,
    "OwnerReferencesPermissionEnforcement": False,
    "MutatingAdmissionPolicy": True,
    "MutatingAdmissionWebhook": True,
    "ValidatingAdmissionPolicy": True,
    "ValidatingAdmissionWebhook": True,
    "ResourceQuota": True,
}
"""The admission plugins in the order in which they run, and whether each is on by default.

Upstream: kubernetes/kubernetes `pkg/kubeapiserver/options/plugins.go`, where NodeRestriction is off by default; every installer turns
it on.
"""
DEFAULT_PLUGINS = ", ".join(name for name, asked in PLUGINS.items() if asked)


def plugins(text: str) -> tuple[str, ...]:
    return names(text, lambda name: "" if name in PLUGINS else f'plugin "{name}" is unknown')


def redis_url(text: str) -> str:
    if text:
        store_address.parse(text)
    return text


def resources(text: str) -> tuple[str, ...]:
    return names(text, lambda name: "" if name.count("/") == 1 else f"{name!r} is not GROUP/PLURAL")
