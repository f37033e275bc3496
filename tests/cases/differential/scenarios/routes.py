"""Everything around the resources: 404/405 forms, discovery, OpenAPI, version, health, headers, authentication and authorization answers."""
import asyncio, json, re
from harness import scenario, YAML, PROTO, MERGE, PLURALS

NF, NA = "the server could not find the requested resource", "the server does not allow this method on the requested resource"
AGG = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"




@scenario("routes.openapi")
async def _(s):
    keep = lambda o: sorted(k for k in o["paths"] if s.g in k)
    a = await s.get("^/openapi/v3", 200, pick=keep)
    url = a.json["paths"].get(f"apis/{s.gv}", {}).get("serverRelativeURL", "/none")
    s.fact("url", url.split("=")[0] + f"={len(url.split('=')[-1])}")
    opid = lambda i: re.sub(r"^([a-z]+)[A-Za-z]*?V1", r"\1…V1", i)          # the group's own words
    def shape(o):
        return {"top": list(o), "openapi": o["openapi"], "paths": {p: {m: [(opid(q["operationId"]), q.get("x-kubernetes-action"), sorted(x["name"] for x in q.get("parameters", []))) if m in ("get", "put", "post", "patch", "delete") else [x["name"] for x in q] for q in [v[m]]] for m in v} for p, v in sorted(o["paths"].items()) if any(r in p for r in PLURALS) or p.endswith("/v1/")},
                "schemas": sorted(k.rsplit(".", 1)[-1] for k in o["components"]["schemas"] if any(x in k for x in ("ResourceSlice", "DeviceClass", "ResourceClaim")) and "Pool" not in k and "Consumer" not in k), "security": o["components"].get("securitySchemes")}
    await s.get("^" + url, 200, pick=shape, label="GET group document with the current hash")
    await s.get("^" + url.split("?")[0], 200, pick=lambda o: o["info"]["title"], label="GET group document without hash")
    await s.get("^" + url.split("?")[0] + "?hash=ABC", 301, label="GET group document with an old hash", pick=lambda o: None)
    await s.get("^" + url.split("?")[0], 406, accept="text/html", label="GET group document, Accept text/html")
    await s.get("^" + url.split("?")[0], 200, accept="application/com.github.proto-openapi.spec.v3@v1.0+protobuf", pick=lambda o: None, label="GET group document as protobuf")
    await s.get("^/openapi/v3/apis/nope.example/v1", 404)
    b = await s.get("^/openapi/v2", 200, pick=lambda o: [list(o), o["swagger"], sorted(k for k in o["paths"] if s.gv in k)], label="GET /openapi/v2")
    await s.get("^/openapi/v2", 304, headers={"If-None-Match": b.headers.get("Etag", "")}, label="GET /openapi/v2 If-None-Match")
    await s.get("^/openapi/v2", 406, accept="text/html", label="GET /openapi/v2 text/html")



