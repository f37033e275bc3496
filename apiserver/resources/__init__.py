"""The kinds, one file each. Imported by app and by tests only.

Every public module of this folder is a kind and declares it as `RESOURCE`. Modules with an underscore hold code that several kinds share.
"""

from __future__ import annotations

import importlib
import pkgutil

from apiserver.resources._device_selectors import DeviceSelectors
from apiserver.resources._features import GATES
from apiserver.schema.resource import Resource

__all__ = ["GATES", "RESOURCES", "DeviceSelectors"]


def _collect() -> tuple[Resource, ...]:
    """Return every kind of the folder, by plural name. Fails at once for a public module without one, which is an error of ours."""
    modules = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    found = [importlib.import_module(f"{__name__}.{name}").RESOURCE for name in modules]
    return tuple(sorted(found, key=lambda resource: resource.plural))


RESOURCES = _collect()
