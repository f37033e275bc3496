"""Select the objects of a list, watch or deletecollection: the scope in storage, and the test that each object must pass.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/get.go` (the single-name rule), `pkg/storage/selection_predicate.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from apiserver.apimachinery import errors, selectors, shards
from apiserver.apimachinery.options import ListOptions
from apiserver.apimachinery.releases import V1_37, at, since
from apiserver.apimachinery.shards import ShardSelector
from apiserver.config import features
from apiserver.schema.resource import Resource
from apiserver.verbs import shard_selector
from apiserver.verbs.context import Call, Services
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Entry, Key
from apiserver.watchcache.scope import Scope
from kubetext import names

NAME, NAMESPACE = "metadata.name", "metadata.namespace"
Test = Callable[[Entry], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a request selects.

    * `prefix` narrows the scan; `key` names the one object that can match; all that match have the value of `field`.
    * `test` is None when all of the scope matches.
    * `unfiltered`: there is no label or field selector (COUNTS_SHARDS: nor a shard selector). Only then do chunks tell how many objects
      remain.
    * `shard` is the shard selector, or empty.
    * `lengthy` tells for which objects the test may take longer than a step of the event loop; None if for none.
    """

    prefix: str
    key: Key | None
    test: Test | None
    unfiltered: bool
    field: tuple[int, str] | None
    shard: str = ""
    lengthy: Test | None = None

    @property
    def scope(self) -> Scope:
        """Return where the hub looks for this watcher."""
        if self.key is not None:
            return Scope(key=self.key)
        return Scope(prefix=self.prefix, field=self.field)


def select(call: Call, options: ListOptions) -> Selection:
    """Return the selection of the options. Raises StatusError 400 for field labels that the kind does not know and for names that
    contradict each other."""
    resource, info = call.resource, call.info
    fields = options.field_selector
    for label in fields.tests:
        _check_label(resource, label)
    unfiltered = fields.empty and options.label_selector.empty
    if info.name:
        if fields.empty:
            fields = selectors.FieldSelector(((NAME, "=", info.name),))
        elif fields.requires(NAME) != info.name:
            raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
    namespace = _namespace(resource, info.namespace, fields)
    return Selection(
        prefix=f"{namespace}/" if namespace else "",
        key=_single(resource, namespace, info.name or _only_name(fields)),
        test=_test(resource, fields, options.label_selector),
        unfiltered=unfiltered,
        field=_indexed(resource, fields),
        lengthy=_lengthy(options.label_selector),
    )


def _nothing() -> None:
    pass


COUNTS_SHARDS = since(V1_37, value=False, before=True, what="chunks of a shard do not tell how many objects remain")


async def within_shard(
    services: Services, chosen: Selection, wanted: ListOptions, *, missed: Callable[[], None] = _nothing
) -> Selection:
    """Return the part of the selection that lies in the requested shard, if the gate is on. Calls `missed` for every object that lies
    elsewhere. Raises StatusError 500.
    Upstream: kubernetes/apiserver `pkg/registry/generic/registry/store.go` ListPredicate and Watch.
    """
    if not wanted.shard_selector or not services.gates.enabled(features.SHARDED_LIST_AND_WATCH):
        return chosen
    shard = await shard_selector.read(wanted.shard_selector)
    counted = chosen.unfiltered and at(services.gates.release, COUNTS_SHARDS)
    return replace(chosen, test=_shard_test(shard, chosen.test, missed), shard=str(shard), unfiltered=counted)


def _shard_test(shard: ShardSelector, others: Test | None, missed: Callable[[], None]) -> Test:
    covers = shard.covers
    hash_of = _uid_hash if shard.field == shards.UID else _namespace_hash

    def test(entry: Entry) -> bool:
        if covers(hash_of(entry)):
            return others is None or others(entry)
        missed()
        return False

    return test


def _uid_hash(entry: Entry) -> int:
    """Return the hash of the uid, computed once: it takes longer than everything else that a list does with an object."""
    if entry.uid_hash < 0:
        entry.uid_hash = shards.hash_of(entry.uid)
    return entry.uid_hash


def _namespace_hash(entry: Entry) -> int:
    return _hash_of_name(entry.namespace)


@functools.lru_cache(maxsize=1024)
def _hash_of_name(namespace: str) -> int:
    return shards.hash_of(namespace.encode())


def _check_label(resource: Resource, label: str) -> None:
    if resource.custom is not None:
        always = (NAME, NAMESPACE) if resource.namespaced else (NAME,)
        if label not in always and label not in resource.selectable:
            raise errors.bad_request(f"field label not supported: {label}")
    elif resource.own_field_labels:
        if label != NAME and label not in resource.selectable:
            # Kinds of the core group do not name themselves (kubernetes/kubernetes `pkg/apis/core/v1/conversion.go`).
            kind = f" for {resource.api_version}, Kind={resource.kind}" if resource.group else ""
            raise errors.bad_request(f"field label not supported{kind}: {label}")
    elif label not in (NAME, NAMESPACE) and label not in resource.selectable:
        raise errors.bad_request(f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def _namespace(resource: Resource, namespace: str, fields: selectors.FieldSelector) -> str:
    if namespace or not resource.namespaced:
        return namespace
    wanted = fields.requires(NAMESPACE)
    return wanted if wanted and not names.dns_label(wanted) else ""


def _only_name(fields: selectors.FieldSelector) -> str:
    """Return the name of the one object that a deletecollection, or a watch on a deprecated path, selects; "" if there may be several."""
    name = fields.requires(NAME)
    return name if name and not names.path_segment(name) else ""


def _single(resource: Resource, namespace: str, name: str) -> Key | None:
    if not name or (resource.namespaced and not namespace):
        return None
    return keys.key(namespace if resource.namespaced else "", name)


def _indexed(resource: Resource, fields: selectors.FieldSelector) -> tuple[int, str] | None:
    """Return the indexed field that a selector requires, and its value; None without one. A field by which lists find objects comes first.

    The index has the values of each object in the version in which it is stored, so it does not help where a webhook converts.
    """
    if resource.custom is not None and resource.custom.webhook is not None:
        return None
    places = {label: place for place, label in enumerate(resource.indexed)}
    for label in (*resource.listed_by, *places):
        value = fields.requires(label)
        if value is not None:
            return places[label], value
    return None


def _getter(resource: Resource, label: str) -> Callable[[Entry], str]:
    if label == NAME:
        return lambda entry: entry.name
    if label == NAMESPACE:
        return lambda entry: entry.namespace
    position = list(resource.indexed).index(label)
    return lambda entry: entry.fields[position]


def _test(resource: Resource, fields: selectors.FieldSelector, labels: selectors.LabelSelector) -> Test | None:
    """Return one function for all selectors; None when there is nothing to test. Its cost depends on the object, not on the selectors."""
    tests = [_field_test(_getter(resource, label), test) for label, test in fields.tests.items()]
    matches = labels.matches
    if not labels.empty:
        tests.append(lambda entry: matches(entry.labels))
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda entry: all(test(entry) for test in tests)


def _lengthy(labels: selectors.LabelSelector) -> Test | None:
    return (lambda entry: labels.lengthy(entry.labels)) if len(labels.requirements) > selectors.LOOKED_UP else None


def _field_test(value_of: Callable[[Entry], str], test: selectors.FieldTest) -> Test:
    if test == selectors.FieldTest(test.equal) and test.equal is not None:
        return lambda entry: value_of(entry) == test.equal
    return lambda entry: test(value_of(entry))
