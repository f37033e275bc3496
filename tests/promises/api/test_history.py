"""Any sequence of operations against a model, and the state at every version against the log of a watch (invariants 6 and 12)."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis
from hypothesis import strategies as st

from tests.promises.api.client import MERGE, Client, Event, Object, claim, names, version

FINALIZER = "example.com/f"
_NAMESPACES = itertools.count()

NAMES = st.sampled_from(["a", "a-b", "a.b", "b"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), max_size=2)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "put", "patch", "delete", "finalize", "orphan", "delete all"]),
        NAMES,
        LABELS,
        st.sampled_from([(), (FINALIZER,)]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=4,
    max_size=14,
)


class Model:
    """A model of a few objects as the API promises them, in a dozen lines: name -> (labels, finalizers, deleting)."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[dict[str, str], tuple[str, ...], bool]] = {}

    def apply(self, operation: str, name: str, labels: dict[str, str], finalizers: tuple[str, ...]) -> int:
        """The status code of the operation; its effect."""
        if operation == "delete all":
            for each in list(self.objects):
                self.apply("delete", each, {}, ())
            return 200
        if operation == "create":
            if name in self.objects:
                return 409
            self.objects[name] = (labels, finalizers, False)
            return 201
        if name not in self.objects:
            return 404
        old_labels, old_finalizers, deleting = self.objects[name]
        if operation in ("put", "finalize"):
            new = finalizers if operation == "put" else ()
            kept = labels if operation == "put" else old_labels
            if deleting and set(new) - set(old_finalizers):
                return 422
            self.objects[name] = (kept, new, deleting)
        elif operation == "patch":
            self.objects[name] = ({**old_labels, **labels}, old_finalizers, deleting)
        else:
            others = tuple(f for f in old_finalizers if f != "orphan")
            keeps = operation == "orphan" or (operation == "delete" and "orphan" in old_finalizers)
            new = (*others, "orphan") if keeps else others
            self.objects[name] = (old_labels, new, True)
        if self.objects[name][2] and not self.objects[name][1]:
            del self.objects[name]
        return 200


def send(api: Client, path: str, operation: str, name: str, labels: dict[str, str], finalizers: Any, dry: Any) -> int:
    one = f"{path}/{name}"
    query: dict[str, Any] = {"dryRun": "All"} if dry else {}
    metadata: Object = {"labels": labels, "finalizers": list(finalizers)}
    if operation == "create":
        return api.ask("POST", path, claim(name, **metadata), **query).status
    if operation == "put":
        return api.ask("PUT", one, claim(name, **metadata), **query).status
    if operation in ("patch", "finalize"):
        patch = {"labels": labels} if operation == "patch" else {"finalizers": None}
        return api.ask("PATCH", one, {"metadata": patch}, headers={"Content-Type": MERGE}, **query).status
    if operation == "orphan":
        return api.ask("DELETE", one, propagationPolicy="Orphan", **query).status
    return api.ask("DELETE", path if operation == "delete all" else one, **query).status


def fold(log: list[Event]) -> list[Object]:
    """The objects after so many events, in order of their names, as a list shows them."""
    state: dict[str, Object] = {}
    for kind, obj in log:
        name = obj["metadata"]["name"]
        if kind == "DELETED":
            del state[name]
        else:
            assert (kind == "ADDED") is (name not in state)
            state[name] = {member: value for member, value in obj.items() if member not in ("kind", "apiVersion")}
    return [state[name] for name in sorted(state)]


@hypothesis.settings(max_examples=25)
@hypothesis.given(operations=OPERATIONS)
def test_random_operations_match_the_model_and_every_version_is_listed(
    api: Client, operations: list[tuple[str, str, dict[str, str], tuple[str, ...], bool]]
) -> None:
    path, model = api.claims(api.namespace(f"history-{next(_NAMESPACES)}")), Model()
    start = version(api.get(path))
    for operation, name, labels, finalizers, dry in operations:
        if operation == "orphan" and not api.target.namespaces:
            continue  # dev has a garbage collector, which removes the finalizer at some moment
        acting = Model() if dry else model
        acting.objects = dict(model.objects) if dry else model.objects
        before, known = api.get(path), dict(model.objects)
        assert send(api, path, operation, name, labels, finalizers, dry) == acting.apply(
            operation, name, labels, finalizers
        )
        now = api.get(path)
        shown = {
            item["metadata"]["name"]: (
                item["metadata"].get("labels", {}),
                tuple(item["metadata"].get("finalizers", ())),
                "deletionTimestamp" in item["metadata"],
            )
            for item in now["items"]
        }
        assert shown == model.objects
        if model.objects == known:
            assert now["items"] == before["items"], "what changes nothing gives no object a new version"
    _every_version_is_the_fold_of_the_log(api, path, start)


def _every_version_is_the_fold_of_the_log(api: Client, path: str, start: int) -> None:
    last = api.create(path, claim("z-last"))
    with api.watch(path, resourceVersion=start) as watch:
        log = watch.up_to(version(last))
    for count in range(len(log) + 1):
        then = version(log[count - 1][1]) if count else start
        listed = api.get(path, resourceVersion=then, resourceVersionMatch="Exact")
        assert listed["items"] == fold(log[:count])
        assert version(listed) == then
    half = version(log[len(log) // 2][1])
    page = api.get(path, resourceVersion=half, limit=1)
    found = names(page)
    while "continue" in page["metadata"]:
        page = api.get(path, limit=1, continue_=page["metadata"]["continue"])
        found += names(page)
    assert found == [item["metadata"]["name"] for item in fold(log[: len(log) // 2 + 1])]
