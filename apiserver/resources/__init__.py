"""The kinds, one file each. Imported by app and by tests only.

Every public module of this folder is a kind and says what it is in `RESOURCE`; modules with an underscore hold what several kinds share.
"""

from __future__ import annotations

import importlib
import pkgutil

from apiserver.resources._device_selectors import DeviceSelectors
from apiserver.resources._features import GATES
from apiserver.schema.resource import Resource

__all__ = ["GATES", "RESOURCES", "DeviceSelectors"]


def _collect() -> tuple[Resource, ...]:
    """Every kind of the folder, by plural name. A public module that declares none is a mistake of ours: fail at once."""
    modules = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    found = [importlib.import_module(f"{__name__}.{name}").RESOURCE for name in modules]
    return tuple(sorted(found, key=lambda resource: resource.plural))


RESOURCES = _collect()
