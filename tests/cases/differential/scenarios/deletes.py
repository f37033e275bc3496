"""DELETE and DELETECOLLECTION: options in body and query, preconditions, propagation, finalizers, dry run."""
import json
from harness import scenario, MERGE, YAML, PROTO

U = "11111111-1111-1111-1111-111111111111"

@scenario("delete.plain")
async def _(s):
    ns = await s.ns()
    c = ns + "/resourceclaims"
    await s.make("/resourceslices", s.slice("a"))
    await s.make("/deviceclasses", s.dclass("a"))
    await s.make(c, s.claim("a"))
    await s.make(ns + "/resourceclaimtemplates", s.template("a"))
    for p in ("/resourceslices", "/deviceclasses", c, ns + "/resourceclaimtemplates"):
        await s.delete(f"{p}/{s.n('a')}", 200)
        await s.delete(f"{p}/{s.n('a')}", 404)
    await s.delete(f"{c}/{s.n('a')}?dryRun=All", 404)
    await s.delete(f"/namespaces/{s.n('nope')}/resourceclaims/x", 404)




