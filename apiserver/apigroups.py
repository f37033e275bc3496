"""The API groups of a server: its kinds, versions and feature gates as one Kubernetes release, and the stores of these kinds.

    flags ─► Serving ─► built-in kinds, those of packages, those of definitions ─► Kinds ─► Stores

Flags and kinds are judged together, for one release or for all that the server may become.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain

from apiserver.apiextensions import kinds as custom_kinds
from apiserver.apiextensions.following import Definitions
from apiserver.apimachinery.releases import NEWEST, SUPPORTED, Release, at
from apiserver.codecs.objects import adopted, canonical, indexed
from apiserver.codecs.protobuf import messages
from apiserver.config import features
from apiserver.config.config import CRDS, FEATURE_GATES, GROUP, KINDS, Config, ConfigError, Serving
from apiserver.kinds import enablement, packages
from apiserver.kinds.served import InvalidKinds, Kinds
from apiserver.resources import GATES, RESOURCES
from apiserver.schema.featuregate import Gate, Gates, InvalidGates, fitting
from apiserver.schema.resource import Resource
from apiserver.schema.types import Struct
from apiserver.standalone import control
from apiserver.storage import store as storage
from apiserver.storage.store import StoreOptions, Stores
from apiserver.validation import verdict
from apiserver.watchcache.entry import IndexFunc
from kubecel.kubernetes import environments

logger = logging.getLogger(__name__)


def kinds(serving: Serving, *, alone: bool = False, custom: Sequence[Resource] = ()) -> Kinds:
    """Return the served kinds: the built-in ones, those of the operator's packages, and `custom`, those of definitions. They are those of
    one release, in the enabled versions.

    `alone` adds the kinds that a server without a cluster needs. Raises ConfigError, also for invalid combinations of feature gates.
    """
    served, errors = judged(serving, alone=alone, custom=custom)
    if served is None or errors:
        raise ConfigError(errors)
    return served


def packaged(served: Kinds) -> list[Resource]:
    """Return the kinds that packages declare, in every served version."""
    own = {kind.shape for kind in at(served.release, (*RESOURCES, *control.RESOURCES))}
    return [kind for kind in served if kind.stored.shape not in own]


def judged(
    serving: Serving, wrong: Set[str] = frozenset(), *, alone: bool = False, custom: Sequence[Resource] = ()
) -> tuple[Kinds | None, list[str]]:
    """Return the served kinds, like `kinds`, and all errors in the flags about them.

    Flags in `wrong` have errors that are reported already. Nothing that depends on them is judged, nor on a package that cannot be
    served.
    """
    release = release_of(serving)
    found = _loaded(serving, release)
    loaded = [kind for kind in found if isinstance(kind, Resource)]
    unusable = [text for text in found if isinstance(text, str)]
    complete = not unusable and KINDS not in wrong
    served, mistakes = (None, []) if GROUP in wrong else _served(serving, loaded, alone=alone)
    clashes = _gate_errors(loaded, {}, release)
    told = [f"--{KINDS}: {text}" for text in (*unusable, *mistakes, *clashes)]
    if custom and served is not None and not mistakes:
        served, mistakes = _served(serving, loaded, alone=alone, custom=custom)
        told += (f"{_ABOUT_CRDS}{text}" for text in mistakes)
    if complete and served is not None:
        told += (f"--runtime-config: {text}" for text in enablement.errors(serving.runtime_config, served.configurable))
    if complete and not clashes:
        switched = _gate_errors(loaded, serving.feature_gates, release, partly=FEATURE_GATES in wrong)
        told += (f"--{FEATURE_GATES}: {text}" for text in switched)
    return served, told


def definitions(config: Config) -> Definitions:
    """Return the definitions in the operator's files, to be loaded. Their kinds must fit together and beside all others."""
    return Definitions(config.serving.crds, make=custom_kinds.resources, judge=functools.partial(clashes, config))


def clashes(config: Config, custom: Sequence[Resource]) -> list[str]:
    """Return why kinds of definitions cannot be served together, and beside all others."""
    judge = judged_everywhere if config.follows else judged
    _, errors = judge(config.serving, alone=config.alone, custom=custom)
    return [text.removeprefix(_ABOUT_CRDS) for text in errors if text.startswith(_ABOUT_CRDS)]


def judged_everywhere(
    serving: Serving, wrong: Set[str] = frozenset(), *, alone: bool = False, custom: Sequence[Resource] = ()
) -> tuple[Kinds | None, list[str]]:
    """Return the same as `judged`, for a server that may become every supported release.

    An error in the flags about kinds counts in whichever release it occurs. A feature gate or an API version is an error only if no
    release can have it, because an upgrade of the cluster must not stop the server.
    """
    newest: Kinds | None = None
    errors: list[dict[str, None]] = []
    refused: list[dict[str, str]] = []
    for release in reversed(SUPPORTED):
        asked = replace(serving, emulated=release, feature_gates={})
        served, told = judged(asked, wrong, alone=alone, custom=custom)
        newest = newest or served
        errors.append(dict.fromkeys(told))
        refused.append(
            {}
            if any(map(_is_about_kinds, told))
            else _fit(replace(asked, feature_gates=serving.feature_gates), wrong)[1]
        )
    kinds_wrong = dict.fromkeys(text for told in errors for text in told if _is_about_kinds(text))
    versions_wrong = [text for text in errors[0] if not _is_about_kinds(text) and all(text in told for told in errors)]
    gates_wrong = dict.fromkeys(
        f"--{FEATURE_GATES}: {text}" for name, text in refused[0].items() if all(name in other for other in refused)
    )
    return newest, [*kinds_wrong, *versions_wrong, *gates_wrong]


_ABOUT_CRDS = f"--{CRDS}: "


def _is_about_kinds(error: str) -> bool:
    return error.startswith((f"--{KINDS}: ", _ABOUT_CRDS))


def as_release(config: Config, release: Release) -> Config:
    """Return the configuration of a server that is this release. Feature gates that the release cannot have are left out, with a warning.

    Upstream: a kube-apiserver would refuse to start with them.
    """
    serving = replace(config.serving, emulated=release)
    fit, refused = _fit(serving)
    for name, text in refused.items():
        about = {"featureGate": name, "release": str(release), "error": text}
        logger.warning("a feature gate is ignored, because this release cannot have it", extra=about)
    return replace(config, serving=replace(serving, feature_gates=fit))


def _fit(serving: Serving, wrong: Set[str] = frozenset()) -> tuple[Mapping[str, bool], dict[str, str]]:
    release = release_of(serving)
    loaded = [kind for kind in _loaded(serving, release) if isinstance(kind, Resource)]
    partly = FEATURE_GATES in wrong
    return fitting(_declared_gates(loaded), serving.feature_gates, release=release, partly=partly)


def _loaded(serving: Serving, release: Release) -> list[Resource | str]:
    """Return the built-in kinds and those of the operator's packages, as they are in a release, and the errors of packages."""
    builtin = at(release, RESOURCES) if serving.builtin else ()
    return [*builtin, *chain.from_iterable(packages.load(name, release) for name in serving.kinds)]


def _served(
    serving: Serving, loaded: Iterable[Resource], *, alone: bool, custom: Iterable[Resource] = ()
) -> tuple[Kinds | None, list[str]]:
    builtin = control.RESOURCES if alone else ()
    try:
        served = Kinds(
            loaded,
            group=serving.group,
            runtime_config=serving.runtime_config,
            builtin=builtin,
            custom=custom,
            release=release_of(serving),
        )
    except InvalidKinds as e:
        return None, e.errors
    return served, list(packages.collisions(served))


def release_of(serving: Serving) -> Release:
    """Return the release of Kubernetes that the server is."""
    return NEWEST if serving.emulated is None else serving.emulated


async def open_stores(
    options: StoreOptions, served: Kinds, serving: Serving, *, alone: bool = False, creatable: Iterable[Resource] = ()
) -> Stores:
    """Start following the stores of the kinds. Objects of other releases are read as this release would have stored them. `creatable` are
    kinds that are created in a store that lacks them and holds others.

    Raises ValueError when the URL cannot be read.
    """
    readers = {kind.storage_name: index_func(kind) for kind in served.stored}
    adopt = await asyncio.to_thread(adopters, served, serving, alone=alone)
    created = frozenset(kind.storage_name for kind in creatable)
    return await storage.open_stores(options, readers, adopt=adopt, creatable=created)


async def add_stores(stores: Stores, served: Kinds, *, creates: bool) -> None:
    """Follow the stores of further kinds. `creates`: the store may lack them. Raises StorageError."""
    for kind in served.stored:
        if kind.storage_name not in stores:
            await stores.add(kind.storage_name, index_func(kind), adopt=_adopt_custom(kind), creates=creates)


def read_otherwise(stores: Stores, changed: Iterable[Resource]) -> None:
    """Read the stored objects of kinds by their changed definitions. Their watches end, and their memory is filled anew."""
    for kind in changed:
        stores.read_otherwise(kind.storage_name, index_func(kind), adopt=_adopt_custom(kind))


def index_func(kind: Resource) -> IndexFunc:
    """Return what memory reads of a kind's stored objects, and the fields by which lists find them."""
    return IndexFunc(indexed.reader(kind), kind.listed_places)


def _adopt_custom(kind: Resource) -> adopted.Adopt | None:
    return None if kind.custom is None else kind.custom.adopt


def released(config: Config, release: Release, custom: Sequence[Resource] = ()) -> tuple[Config, Kinds]:
    """Return the configuration and the kinds of a server that is this release. Takes a tenth of a second: call it in a thread."""
    fit = as_release(config, release)
    served = kinds(fit.serving, alone=fit.alone, custom=custom)
    prepare(served)
    return fit, served


def prepare(served: Kinds) -> None:
    """Make what is derived from shapes and releases, and kept with them."""
    environments.base(served.release)
    for kind in served.known:
        canonical.prepare(kind.stored.shape)
        verdict.test(kind.stored.shape)
        if kind.custom is None:
            messages.prepare(kind.shape)


def adopters(served: Kinds, serving: Serving, *, alone: bool = False) -> dict[str, adopted.Adopt]:
    """Return the readers of values that servers of other releases stored, or of other definitions, by storage name."""
    shapes: dict[str, list[Struct]] = {}
    for release in reversed(SUPPORTED):
        if release != served.release:
            for kind in _stored(serving, release, alone=alone):
                shapes.setdefault(kind.storage_name, []).append(kind.shape)
    found = {
        kind.storage_name: _adopt_custom(kind) or adopted.adopter(kind.shape, shapes.get(kind.storage_name, ()))
        for kind in served.stored
    }
    return {name: adopt for name, adopt in found.items() if adopt is not None}


def storage_names(serving: Serving, *, alone: bool = False, custom: Sequence[Resource] = ()) -> list[str]:
    """Return the names under which the store keeps kinds: those of the given release, or of every release that the server may be."""
    possible = SUPPORTED if serving.emulated is None else (serving.emulated,)
    declared = (kind for release in possible for kind in _stored(serving, release, alone=alone))
    return sorted({kind.storage_name for kind in (*declared, *custom)})


def _stored(serving: Serving, release: Release, *, alone: bool) -> Sequence[Resource]:
    return kinds(replace(serving, emulated=release, feature_gates={}, runtime_config={}), alone=alone).stored


def _gate_errors(
    known: Iterable[Resource], switched: Mapping[str, bool], release: Release, *, partly: bool = False
) -> list[str]:
    """Return the errors of feature gates; without `switched`, those of their declarations.

    `partly`: some switched gates are unknown, so a gate's dependencies cannot be judged.
    """
    try:
        Gates(_declared_gates(known), switched, release=release)
    except InvalidGates as e:
        return e.certain if partly else e.errors
    return []


def gates(serving: Serving, served: Kinds) -> Gates:
    """Return every feature gate as the operator switched it: the server's own and those of the kinds, served or not.

    Invalid combinations were refused together with the kinds.
    """
    return Gates(_declared_gates(served.known), serving.feature_gates, release=served.release)


def described_gates() -> list[str]:
    """Return the lines about the built-in feature gates in the help."""
    return Gates(_declared_gates(at(NEWEST, RESOURCES))).described()


def _declared_gates(kinds: Iterable[Resource]) -> Iterator[Gate]:
    """Yield the gates of the server, of the built-in kinds, and of other kinds. Those of the built-in kinds are known without the kinds,
    too: expressions depend on them, and an operator can give all components of a cluster one list."""
    return chain(features.GATES, GATES, chain.from_iterable(kind.gates for kind in (*RESOURCES, *kinds)))
