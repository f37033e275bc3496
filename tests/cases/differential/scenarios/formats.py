"""Representations: Accept negotiation, Table, PartialObjectMetadata, YAML, protobuf, pretty, gzip, exact bytes."""
import gzip, json
from harness import scenario, YAML, PROTO, MERGE

T, T1B = "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1beta1"
PO, PL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
ONLY = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"






@scenario("format.gzip")
async def _(s):
    G = {"Accept-Encoding": "gzip"}
    await s.make("/deviceclasses", s.dclass("small"), s.dclass("big", annotations={"x": "y" * 140000}))
    k = lambda o: o.get("kind") or o.get("typeMeta")
    big, small = f"/deviceclasses/{s.n('big')}", f"/deviceclasses/{s.n('small')}"
    await s.get(small, 200, headers=G, pick=k, label="GET small, gzip")
    await s.get(big, 200, headers=G, pick=k, label="GET big, gzip")
    await s.get(big, 200, pick=k, label="GET big, no Accept-Encoding")
    for v in ("gzip;q=1", "deflate, gzip", "GZIP", "*", "identity", "br,gzip;q=0", "gzip, deflate"):
        await s.get(big, 200, headers={"Accept-Encoding": v}, pick=k, label=f"GET big, Accept-Encoding {v}")
    await s.get(f"/deviceclasses?{s.sel}", 200, headers=G, pick=k, label="LIST big, gzip")
    await s.get(f"/deviceclasses?{s.sel}", 200, headers=G, pick=k, accept=PROTO, label="LIST big, gzip, protobuf")
    await s.get(f"/deviceclasses?{s.sel}", 200, headers=G, pick=k, accept=YAML, label="LIST big, gzip, yaml")
    await s.get(f"/deviceclasses?{s.sel}", 200, headers=G, pick=k, accept=T, label="LIST big, gzip, Table")
    await s.post("/deviceclasses", s.dclass("big2", annotations={"x": "y" * 140000}), 201, headers=G, pick=k, label="POST big, gzip")
    await s.patch(big, {"metadata": {"labels": {"l": "1"}}}, 200, headers=G, pick=k, label="PATCH big, gzip")
    await s.delete(big, 200, headers=G, pick=k, label="DELETE big, gzip")
    body = gzip.compress(json.dumps(s.dclass("z")).encode())
    await s.post("/deviceclasses", body, 400, ct="application/json", headers={"Content-Encoding": "gzip"}, label="POST gzip body", pick=lambda o: {**o, "message": o["message"][:60]})
    # the threshold, to the byte: compare the uncompressed length with whether it was compressed
    a = await s.quiet("GET", small)
    base = len(a.body)
    for want in (131071, 131072, 131073):
        await s.quiet("PATCH", small, body={"metadata": {"annotations": {"x": "y" * (want - base - len('"annotations":{"x":""},') - len(',"f:annotations":{".":{},"f:x":{}}') - 40)}}}, ct=MERGE)
        n = len((await s.quiet("GET", small)).body)
        await s.quiet("PATCH", small, body={"metadata": {"annotations": {"x": "y" * (want - base - len('"annotations":{"x":""},') - len(',"f:annotations":{".":{},"f:x":{}}') - 40 + want - n)}}}, ct=MERGE)
        a = await s.fetch("GET", small, headers=G)
        s.record(a, "GET", f"threshold {want}", pick=k)
        s.fact("length", len(a.body))


