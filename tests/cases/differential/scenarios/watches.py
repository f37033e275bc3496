"""WATCH: option validation, start semantics, initial events, bookmarks, selector transitions, end of the stream, converted streams, /watch/ paths."""
import asyncio, json
from harness import scenario, MERGE, fields
from scenarios.lists import LO

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
def lean(o):
    """An object without managedFields: enough for most watch steps."""
    if isinstance(o.get("metadata"), dict) and "managedFields" in o["metadata"]:
        return {**o, "metadata": {k: v for k, v in o["metadata"].items() if k != "managedFields"}}
    return o
SIE_MATCH = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"

async def three(s, mk=None):
    c = await s.ns() + "/resourceclaims"
    for x in "abc":
        last = await s.make(c, s.claim(x, labels={"k": x}))
    await s.quiet("GET", c)
    return c, last.rv







@scenario("watch.live")
async def _(s):
    """create, update, no-op, status, delete, re-create, delete with finalizer as a running watch sees them."""
    c = await s.ns() + "/resourceclaims"
    l = await s.quiet("GET", c)
    w = await s.open(f"{c}?watch=1&resourceVersion={l.rv}&timeoutSeconds=30")
    a = await s.make(c, s.claim("a"))
    u = await s.quiet("PATCH", f"{c}/{s.n('a')}", body={"metadata": {"annotations": {"x": "1"}}}, ct=MERGE)
    await s.quiet("PATCH", f"{c}/{s.n('a')}", body={"metadata": {"annotations": {"x": "1"}}}, ct=MERGE)        # no-op
    await s.quiet("PATCH", f"{c}/{s.n('a')}?dryRun=All", body={"metadata": {"annotations": {"x": "2"}}}, ct=MERGE)
    d = await s.quiet("DELETE", f"{c}/{s.n('a')}")
    await s.make(c, s.claim("a"))
    await s.quiet("PATCH", f"{c}/{s.n('a')}", body={"metadata": {"finalizers": ["ex.io/f"]}}, ct=MERGE)
    await s.quiet("DELETE", f"{c}/{s.n('a')}")
    f = await s.quiet("PATCH", f"{c}/{s.n('a')}", body={"metadata": {"finalizers": None}}, ct=MERGE)
    await s.read(w, 7)
    s.fact("DELETE's answer carries the deletion version", d.rv == (w.events[2]["object"]["metadata"]["resourceVersion"] if len(w.events) > 2 else None))
    s.fact("versions rise", [int(e["object"]["metadata"]["resourceVersion"]) for e in w.events] == sorted(int(e["object"]["metadata"]["resourceVersion"]) for e in w.events))

@scenario("watch.selector")
async def _(s):
    c = await s.ns() + "/resourceclaims"
    l = await s.quiet("GET", c)
    open_ = lambda q: s.open(f"{c}?watch=1&resourceVersion={l.rv}&timeoutSeconds=30&{q}")
    w1, w2, w3 = await asyncio.gather(open_("labelSelector=k%3Dv"), open_("labelSelector=%21k"), open_(f"fieldSelector=metadata.name%3D{s.n('b')}"))
    p = f"{c}/{s.n('a')}"
    await s.make(c, s.claim("a"))
    for lab in ("v", "w", "v", None):
        await s.quiet("PATCH", p, body={"metadata": {"labels": {"k": lab}}}, ct=MERGE)
    await s.quiet("PATCH", p, body={"metadata": {"labels": {"k": "v"}, "annotations": {"n": "1"}}}, ct=MERGE)
    await s.quiet("PATCH", p, body={"metadata": {"annotations": {"n": "2"}}}, ct=MERGE)
    await s.quiet("DELETE", p)
    await s.make(c, s.claim("b", labels={"k": "w"}))
    await s.quiet("DELETE", f"{c}/{s.n('b')}")
    await s.read(w1, 7)
    await s.read(w2, 4, drop=lean)
    await s.read(w3, 2, drop=lean)
    s.fact("versions", len({e["object"]["metadata"]["resourceVersion"] for e in w1.events + w2.events + w3.events}))










def frames(b):
    """A protobuf watch stream → [(event type, apiVersion, kind, object's first bytes are k8s\\0)]"""
    out = []
    while len(b) >= 4:
        n = int.from_bytes(b[:4], "big")
        ev = dict(fields(b[4:4 + n]))
        raw = dict(fields(ev[2]))[1]
        meta = dict(fields(dict(fields(raw[4:]))[1]))
        out.append([ev[1].decode(), meta[1].decode(), meta[2].decode(), raw[:4] == b"k8s\0"])
        b = b[4 + n:]
    return out + ([["rest", len(b)]] if b else [])




