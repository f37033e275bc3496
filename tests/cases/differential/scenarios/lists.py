"""LIST: the resourceVersion × match × limit × continue matrix, chunking, tokens, selectors."""
import base64, json
from harness import scenario

def brief(o):
    """A list without its items' contents."""
    if not isinstance(o, dict) or "items" not in o:
        return o
    return {**o, "items": [i["metadata"]["name"] if set(i) else i for i in o["items"]] if isinstance(o["items"], list) else o["items"]}
B = {"pick": brief}
LO = 'ListOptions.meta.k8s.io "" is invalid: '
FORBID = {"norv": "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
          "cont": "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
          "exact0": 'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'}
CONTRV = "specifying resource version is not allowed when using continue"

def token(t):
    return base64.urlsafe_b64encode(t if isinstance(t, bytes) else json.dumps(t, separators=(",", ":")).encode()).rstrip(b"=").decode()
def untoken(t):
    return json.loads(base64.urlsafe_b64decode(t + "=" * (-len(t) % 4)))

async def five(s, kind="claim"):
    """Namespace with a,b,c | d,e; → (collection path, RV after c)"""
    ns = await s.ns()
    c = ns + ("/resourceclaims" if kind == "claim" else "/resourceclaimtemplates")
    mk = s.claim if kind == "claim" else s.template
    mid = await s.make(c, mk("a"), mk("b"), mk("c"))
    await s.make(c, mk("d"), mk("e"))
    await s.quiet("GET", c)                                   # a consistent list: the cache has caught up
    return c, mid.rv

def expected(rv, match, cont):
    """What section 4.1 says for one cell: None = valid, else (code, message)."""
    e = []
    if match:
        if not rv: e.append(FORBID["norv"])
        if cont: e.append(FORBID["cont"])
        if match not in ("Exact", "NotOlderThan"): e.append(f'resourceVersionMatch: Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""')
        if match == "Exact" and rv == "0": e.append(FORBID["exact0"])
    if e:
        return 422, LO + (e[0] if len(e) == 1 else "[" + ", ".join(e) + "]")
    if cont and rv not in ("", "0"):
        return 400, CONTRV
    return 200, None

def matrix(match):
    async def f(s):
        c, n = await five(s)
        first = await s.quiet("GET", f"{c}?limit=2")
        now = (await s.quiet("GET", c)).rv
        for rvname, rv in (("unset", ""), ("0", "0"), ("old", n), ("latest", now)):
            for limit in ("", "2"):
                for cont in (False, True):
                    q = "&".join(filter(None, [f"resourceVersion={rv}" if rv else "", f"resourceVersionMatch={match}" if match else "",
                                               f"limit={limit}" if limit else "", f"continue={first['metadata.continue']}" if cont else ""]))
                    code, msg = expected(rv, match, cont)
                    a = await s.get(f"{c}?{q}", code, msg, pick=brief, label=f"LIST rv={rvname} match={match or 'unset'} limit={limit or 'unset'} continue={'token' if cont else 'unset'}")
                    if a.status == 200:
                        s.fact("names", a.names)
                        if rvname == "old": s.fact("exactly the requested version", a.rv == rv)
                        if cont: s.fact("version of the first page", a.rv == first.rv)
    return f
for m in ("", "Exact", "NotOlderThan", "Newest"):
    scenario(f"list.matrix.{m or 'unset'}")(matrix(m))




@scenario("list.get.rv")
async def _(s):
    c = await s.ns() + "/resourceclaims"
    a = await s.make(c, s.claim("a"))
    await s.get(f"{c}/{s.n('a')}", 200)
    await s.get(f"{c}/{s.n('a')}?resourceVersion={a.rv}", 200)
    await s.get(f"{c}/{s.n('a')}?resourceVersion=0", 200)
    await s.get(f"{c}/{s.n('a')}?resourceVersion=1", 200)
    await s.get(f"{c}/{s.n('a')}?resourceVersion=", 200)
    await s.get(f"{c}/{s.n('a')}?resourceVersionMatch=Bogus&limit=x&labelSelector=((", 200)
    await s.get(f"{c}/{s.n('a')}?export=true", 400, "the export parameter, deprecated since v1.14, is no longer supported")
    await s.get(f"{c}/{s.n('a')}?export=false", 200)
    await s.get(f"{c}/{s.n('a')}?watch=1", 200)






YAML_T = "application/yaml"





@scenario("list.chunks.snapshot")
async def _(s):
    """Later pages show objects as they were at the first page's version, changed, deleted or created since."""
    c = await s.ns() + "/resourceclaimtemplates"
    await s.make(c, *(s.template(f"o{i:02}") for i in range(9)))
    p1 = await s.get(f"{c}?limit=3")
    await s.quiet("PATCH", f"{c}/{s.n('o04')}", body={"metadata": {"annotations": {"new": "1"}}}, ct="application/merge-patch+json")
    await s.quiet("DELETE", f"{c}/{s.n('o05')}")
    await s.make(c, s.template("o03x"))
    p2 = await s.get(f"{c}?limit=3&continue={p1['metadata.continue']}")
    await s.get(f"{c}?limit=3&continue={p2['metadata.continue']}")
    await s.get(f"{c}?labelSelector=t%3D{s.id}&continue={p1['metadata.continue']}", pick=brief, label="LIST the rest, selector added")
    await s.get(f"{c}?continue={p1['metadata.continue']}", 200, pick=lambda o: [o["kind"], len(o["rows"])], accept="application/json;as=Table;g=meta.k8s.io;v=v1", label="LIST the rest as Table")
    await s.get(f"{c}", pick=brief)
