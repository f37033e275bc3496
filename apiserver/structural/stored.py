"""Read stored custom resources under the present schema: what it does not know is dropped, its defaults are filled in.

Objects that were stored under another schema are read, never refused. The stored bytes stay as they are.

A stored value names the version of its object in its second line, as upstream's has its apiVersion. A value without a second line is in
the stored version of the definition that reads it. Versions of Sluice that wrote such values could not change a stored version.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go` (crdConversionRESTOptionsGetter).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical
from apiserver.codecs.objects.adopted import Adopt
from apiserver.schema.resource import Object
from apiserver.schema.structural import Structural
from apiserver.schema.types import Struct
from apiserver.structural import defaulting, embedded, pruning
from apiserver.structural.defaulting import Fill
from apiserver.structural.holders import Holders
from apiserver.structural.pruning import Prune
from apiserver.watchcache.entry import mark, marked, split

_METADATA = "metadata"


def adopter(
    schema: Structural, shape: Struct, *, prune: Prune, fill: Fill, default: Fill, embedding: Holders | None = None
) -> Adopt:
    """Return the reader of the stored values of a kind. `schema` is that of the stored version, with the functions made of it. `shape` is
    that of all custom resources.

    A value comes back as the same object if nothing changes. Metadata is not looked at.
    """
    embedding = embedded.embedding(schema) if embedding is None else embedding
    coerce = embedded.coercer(schema, embedding, drops=True)

    def change(obj: Object, *, nulls: bool) -> bool:
        unknown: list[str] = []
        prune(obj, unknown)
        filled = fill(obj) if nulls else default(obj)
        coerce(obj, None)
        return filled or bool(unknown) or schema in embedding

    def adopt(line: bytes) -> bytes:
        obj = {name: rawjson.parsed(raw) for name, raw in rawjson.members(line).items() if name != _METADATA}
        nulls = b"null" in line
        if not change(obj, nulls=nulls):
            return line
        whole = canonical.decode(shape, line)
        change(whole, nulls=nulls)
        made = canonical.encode(shape, whole)
        return line if made == line else made

    return adopt


def version_adopter(
    stored: str, adopters: Mapping[str, Adopt], shape: Struct, *, convert: Callable[[Object], Object] | None
) -> Adopt:
    """Return the reader of the stored values of a definition. `adopters` read the line of an object by the schema of its version.

    `convert` takes an object to the version `stored`. Without it an object stays in its version, because a webhook has to convert it. So
    does one in a version that the definition no longer has: nothing can convert it. A value comes back as the same object if nothing
    changes.
    """
    own = mark(stored)

    def adopt(value: bytes) -> bytes:
        line, behind = split(value)
        version = marked(behind) if behind else stored
        if version not in adopters:
            return value
        made = adopters[version](line)
        if version != stored and convert is not None:
            made, behind = canonical.encode(shape, convert(canonical.decode(shape, made))), own
        behind = behind or own
        return value if made is line and len(value) == len(line) + len(behind) else made + behind

    return adopt


def converter(
    target: Structural, embedding: Holders | None = None, *, drops: bool = True
) -> Callable[[Object], Object]:
    """Return the conversion to a version, for definitions whose versions differ by their schemas only (strategy None), and the end of
    the conversion by a webhook.

    The object is changed in place: what the version does not know is dropped, and so are nulls that it does not allow. Defaults are not
    filled in. Embedded resources that the version cannot read lose what is wrong; upstream fails to read such an object. Without `drops`
    they raise ValueError.
    """
    prune, drop, coerce = (
        pruning.pruner(target),
        defaulting.dropper(target),
        embedded.coercer(target, embedding, drops=drops),
    )

    def convert(obj: Object) -> Object:
        prune(obj, None)
        drop(obj)
        if wrong := coerce(obj, None):
            raise ValueError(wrong)
        return obj

    return convert
