"""PATCH: JSON patch, merge patch, strategic merge patch, server-side apply."""
import asyncio, json
from harness import scenario, MERGE, JPATCH, SMP, APPLY
from scenarios.lists import LO

REFUSED = "the server rejected our request due to an error in our request"

async def one(s):
    c = await s.ns() + "/resourceclaims"
    await s.make(c, s.claim("a", annotations={"k": "v"}, labels={"l": "1"}))
    return f"{c}/{s.n('a')}", c



@scenario("patch.json")
async def _(s):
    p, c = await one(s)
    J = lambda ops, code=None, msg=None, q="", **kw: s.patch(p + q, ops, code, msg, ct=JPATCH, **kw)
    await J([{"op": "add", "path": "/metadata/labels/x", "value": "1"}], 200)
    await J([{"op": "test", "path": "/metadata/labels/x", "value": "1"}, {"op": "replace", "path": "/metadata/labels/x", "value": "2"}], 200)
    await J([{"op": "test", "path": "/metadata/labels/x", "value": "9"}], 422, REFUSED)
    await J([{"op": "replace", "path": "/metadata/labels/none", "value": "1"}], 200)
    await J([{"op": "remove", "path": "/metadata/labels/none"}], 200)
    await J([{"op": "remove", "path": "/metadata/labels/none"}], 422, REFUSED)
    await J([{"op": "add", "path": "/metadata/nope/deep", "value": "1"}], 422, REFUSED)
    await J([{"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/y"}], 200)
    await J([{"op": "copy", "from": "/metadata/labels/y", "path": "/metadata/labels/z"}], 200)
    await J([{"op": "copy", "from": "/metadata/labels/none", "path": "/metadata/labels/z"}], 200)
    await J([{"op": "move", "from": "/metadata/labels/none", "path": "/metadata/labels/z"}], None)
    await J([{"op": "test", "path": "/metadata/labels/none", "value": None}], None)
    await J([{"op": "test", "path": "/metadata/labels/none", "value": "1"}], 422, REFUSED)
    await J([{"op": "remove", "path": "/metadata/labels/z"}], 200)
    await J([{"op": "bogus", "path": "/metadata/labels/z"}], None)
    await J([{"op": "add"}], None)
    await J([{"path": "/metadata/labels/x", "value": "1"}], None)
    await J([{"op": "add", "path": "metadata/labels/x", "value": "1"}], None)
    await J([{"op": "add", "path": "/metadata/finalizers", "value": ["ex.io/a", "ex.io/b"]}], 200)
    await J([{"op": "add", "path": "/metadata/finalizers/-", "value": "ex.io/c"}], 200)
    await J([{"op": "add", "path": "/metadata/finalizers/0", "value": "ex.io/first"}], 200)
    await J([{"op": "replace", "path": "/metadata/finalizers/-1", "value": "ex.io/last"}], 200)
    await J([{"op": "remove", "path": "/metadata/finalizers/9"}], 422)
    await J([{"op": "add", "path": "/metadata/finalizers/01", "value": "ex.io/x"}], None)
    await J([{"op": "remove", "path": "/metadata/finalizers"}], 200)
    await J([{"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"}, {"op": "add", "path": "/metadata/annotations/c", "value": "~"}], 200)
    await J([{"op": "replace", "path": "", "value": {}}], None)
    await J([{"op": "add", "path": "/metadata/labels", "value": 5}], 422)
    await J([{"op": "add", "path": "/spec/foo", "value": 5}], 200, q="?fieldValidation=Warn")
    await J([{"op": "add", "path": "/spec/foo", "value": 5}], 422, q="?fieldValidation=Strict")
    await J([{"op": "add", "path": "/metadata/labels/u", "value": "1", "foo": 1}], None, q="?fieldValidation=Strict")
    await J([{"op": "add", "path": "/metadata/labels/u", "value": "1", "foo": 1}], 200)
    await J('[{"op":"add","op":"add","path":"/metadata/labels/u","value":"1"}]', None, q="?fieldValidation=Strict")
    await J([{"op": "replace", "path": "/metadata/name", "value": "x"}], 400)
    await J([{"op": "replace", "path": "/spec/devices/requests/0/name", "value": "q"}], 422)
    await J([{"op": "test", "path": "/metadata/labels/l", "value": "1"}] * 10001, 413, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001", label="PATCH 10001 operations")
    await J([{"op": "test", "path": "/metadata/labels/l", "value": "1"}] * 10000, 200, label="PATCH 10000 operations")
    await J([{"op": "test", "path": "/spec/devices", "value": {"requests": [{"exactly": {"count": 1, "deviceClassName": "c", "allocationMode": "ExactCount"}, "name": "r"}]}}], 200, label="PATCH test on an object")
    await s.get(p, 200)


@scenario("apply.basic")
async def _(s):
    c = await s.ns() + "/resourceclaims"
    p = f"{c}/{s.n('a')}"
    SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    body = lambda spec=None, **m: {"apiVersion": s.gv, "kind": "ResourceClaim", "metadata": {"name": s.n("a"), **m}, **({"spec": spec} if spec else {})}
    await s.apply(p, body(), 422, 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch', fm="")
    await s.apply(p + "?dryRun=All", body(SPEC, labels={"t": s.id}), 201, fm="one")
    await s.apply(p, body(SPEC, labels={"t": s.id, "x": "1"}), 201, fm="one")
    await s.apply(p, body(SPEC, labels={"t": s.id, "x": "1"}), 200, fm="one", label="APPLY again")
    await s.apply(p, body(SPEC, labels={"t": s.id, "y": "1"}), 200, fm="one", label="APPLY drops x")
    await s.apply(p, body(SPEC), 409, None, fm="two", label="APPLY the same spec: defaults make it differ")
    await s.apply(p, body(labels={"y": "2"}), 409, f'Apply failed with 1 conflict: conflict with "one": .metadata.labels.y', fm="two")
    await s.apply(p, body(labels={"y": "2", "t": "z"}), 409, None, fm="two", label="APPLY two conflicts")
    await s.apply(p, body(labels={"y": "1"}), 200, fm="two", label="APPLY shared")
    await s.apply(p, body(labels={"y": "3"}), 200, fm="two", force="true")
    await s.patch(p, {"metadata": {"labels": {"y": "4"}}}, 200, label="PATCH by difftest")
    await s.apply(p, body(labels={"y": "3"}), 409, None, fm="two", label="APPLY conflict with an Update manager")
    await s.apply(p, body(labels={"y": "3"}), 200, fm="two", force="true", label="APPLY force")
    await s.apply(p + "?dryRun=All", body(labels={"dry": "1"}), 200, fm="three")
    await s.apply(p, body(resourceVersion="1"), 409, fm="two")
    await s.get(p, 200)



@scenario("patch.concurrent")
async def _(s):
    """Patches without a version never conflict; PUTs with one do, exactly one wins."""
    p, c = await one(s)
    rs = await asyncio.gather(*(s.fetch("PATCH", p, body={"metadata": {"annotations": {f"c{i}": "1"}}}, ct=MERGE) for i in range(12)))
    cur = (await s.get(p, 200, drop=lambda o: sorted(o["metadata"]["annotations"]))).json
    s.fact("statuses", sorted(r.status for r in rs))
    rs = await asyncio.gather(*(s.fetch("PUT", p, body={**cur, "metadata": {**cur["metadata"], "labels": {"w": str(i)}}}) for i in range(8)))
    s.fact("put statuses", sorted(r.status for r in rs))
    rs = await asyncio.gather(*(s.fetch("POST", c, body=s.claim("same")) for i in range(8)))
    s.fact("post statuses", sorted(r.status for r in rs))
