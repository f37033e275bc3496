"""POST and PUT: bodies, names, namespaces, system fields, options, optimistic concurrency, field validation, status isolation."""
import json
from harness import scenario, YAML, MERGE, PROTO, pb, pb_object

@scenario("create.kinds")
async def _(s):
    ns = await s.ns()
    await s.post("/resourceslices", s.slice("a", node="n1", devices=[{"name": "d0", "attributes": {"m": {"string": "x"}}, "capacity": {"mem": {"value": "1Gi"}}}]), 201)
    await s.post("/deviceclasses", s.dclass("a"), 201)
    await s.post(f"{ns}/resourceclaims", s.claim("a"), 201)
    await s.post(f"{ns}/resourceclaimtemplates", s.template("a"), 201)
    await s.post(f"{ns}/resourceclaims", s.claim("empty", spec={}), 201)
    await s.post(f"{ns}/resourceclaims", s.claim("a"), 409, f'resourceclaims.{s.g} "{s.n("a")}" already exists')
    await s.post("/deviceclasses", s.dclass("a"), 409, f'deviceclasses.{s.g} "{s.n("a")}" already exists')
    await s.post("/deviceclasses/", s.dclass("slash"), 201)








@scenario("create.dryrun")
async def _(s):
    c = await s.ns() + "/resourceclaims"
    await s.post(c + "?dryRun=All", s.claim("a"), 201)
    await s.get(f"{c}/{s.n('a')}", 404)
    await s.make(c, s.claim("a"))
    await s.post(c + "?dryRun=All", s.claim("a"), 409)
    await s.post("/resourceslices?dryRun=All", s.slice("a", driver="UPPER.io"), 201)
    await s.post(c + "?dryRun=All", s.claim("b", spec={"devices": {"requests": [{"name": "BAD"}]}}), 422)




@scenario("update.immutable")
async def _(s):
    c = await s.ns() + "/resourceclaims"
    await s.make(c, s.claim("a"))
    await s.put(f"{c}/{s.n('a')}", s.claim("a", spec={}), 422, label="PUT other claim spec")
    await s.make("/resourceslices", s.slice("a", node="n1"))
    await s.put(f"/resourceslices/{s.n('a')}", s.slice("a", node="n2"), 422)
    await s.put(f"/resourceslices/{s.n('a')}", s.slice("a", node="n1", driver="other.io"), 422)
    await s.put(f"/resourceslices/{s.n('a')}", s.slice("a", node="n1", spec={"pool": {"name": "q", "generation": 1, "resourceSliceCount": 1}}), 422)
    await s.put(f"/resourceslices/{s.n('a')}", s.slice("a", node="n1", spec={"pool": {"name": "p", "generation": 2, "resourceSliceCount": 2}}), 200)
    t = c.replace("claims", "claimtemplates")
    await s.make(t, s.template("a"))
    await s.put(f"{t}/{s.n('a')}", s.template("a", spec={"spec": {}}), 422)
    await s.put(f"{t}/{s.n('a')}", s.template("a", annotations={"x": "y"}), 200)
    await s.put(f"{c}/{s.n('a')}", s.claim("a", labels={"a b": "c"}, spec={}), 422, label="PUT bad label and other spec")



ALLOC = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "dev"}]}}}


