"""Discovery documents: groups, versions, resources, the server's version, the index, and the answer for unknown paths.

Documents are made once from the given kinds and answered from memory, without store and authentication. Knows no kind. Upstream:
kubernetes/apiserver `pkg/endpoints/discovery/{root,group,version}.go`, `pkg/server/routes/{index,version}.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from apiserver import buildinfo
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import TextError
from apiserver.apimachinery.releases import V1_37, Release, at, since
from apiserver.apimachinery.request import RequestInfo
from apiserver.discovery import answers, served
from apiserver.discovery.aggregated import Aggregated
from apiserver.discovery.answers import Answer, Document, Question
from apiserver.discovery.core import Core
from apiserver.kinds.served import Kinds
from apiserver.schema import machinery
from apiserver.schema.resource import Resource
from apiserver.wire import as_json, negotiation

if TYPE_CHECKING:
    from aiohttp import web

    from apiserver.wire.response import Exchange

PATCH_LEVEL = since(V1_37, "2", before="3")
"""The patch of each release that the server was compared with. kubectl warns when its own is more than one minor release away."""


class Discovery:
    """Answers that do not concern an object. `paths` are the server's other paths, for the index.

    `core` is None if another server has that group.
    """

    def __init__(
        self, kinds: Kinds, *, version: Mapping[str, str], paths: Iterable[str] = (), core: Core | None = None
    ) -> None:
        groups = {name: versions for name, versions in kinds.groups.items() if name != served.CORE}
        self._root = Document(group_list(groups), machinery.API_GROUP_LIST)
        self._aggregated = Aggregated(groups)
        self._core = core
        self._custom = kinds.custom_groups
        self._groups = {
            name: Document(group(name, versions, top=True), machinery.API_GROUP) for name, versions in groups.items()
        }
        self._versions = {
            (name, v): Document(resource_list(name, v, members), machinery.API_RESOURCE_LIST)
            for name, versions in groups.items()
            for v, members in versions.items()
        }
        self._version = as_json.pretty(version)
        own = ["/apis", *(f"/apis/{g}" for g in groups), *(f"/apis/{g}/{v}" for g, v in self._versions), "/version"]
        self._index = as_json.pretty({"paths": sorted({*own, *(core.documents if core else ()), *paths})})

    def answer(self, question: Question) -> Answer:
        """Answer a path that nothing else serves. Raises upstream's StatusError or TextError.

        Without `core`, `/api` is unknown, and kubectl concludes that the core group is missing.
        """
        path = question.path
        if path in ("/", "/index.html"):
            return Answer(status=200, media=negotiation.JSON, body=self._index)
        if path in ("/version", "/version/"):
            return self._own_version(question)
        if path.startswith("/version/"):
            raise errors.no_such_path()
        if path in ("/apis", "/apis/"):
            return self._aggregated.answer(question) or answers.answered(self._root, question)
        if self._core and (answer := self._core.answer(question)):
            return answer
        name, _, rest = path.removeprefix("/apis/").partition("/") if path.startswith("/apis/") else ("", "", "")
        if name not in self._groups:
            raise TextError(404, "404 page not found\n")
        if not rest:
            return answers.answered(self._groups[name], question)
        version = rest.rstrip("/")
        if name in self._custom and (name, version) not in self._versions:
            raise TextError(404, "404 page not found\n")
        return self._resources(name, version, question)

    def _own_version(self, question: Question) -> Answer:
        if question.method != "GET":
            raise errors.method_not_allowed()
        negotiation.check_produced(question.accept, (negotiation.JSON,))
        return Answer(status=200, media=negotiation.JSON, body=self._version)

    def _resources(self, group: str, version: str, question: Question) -> Answer:
        return answers.answered(answers.routed(self._versions.get((group, version)), question), question)


async def respond(discovery: Discovery, exchange: Exchange, info: RequestInfo) -> web.StreamResponse:
    """Handle every request that is not for a resource and that nothing else serves."""
    question = Question(
        method=info.method,
        path=info.path,
        query=exchange.query,
        accept=exchange.accept,
        user_agent=exchange.user_agent,
        if_none_match=exchange.request.headers.get("If-None-Match", ""),
    )
    answer = discovery.answer(question)
    if answer.recorded and exchange.recording is not None and exchange.recording.wants_answer:
        exchange.recording.answer = (answer.recorded.removesuffix(b"\n"),)
    return await exchange.respond(answer.status, answer.media, answer.body, headers=answer.headers)


def group_list(groups: Mapping[str, Mapping[str, Sequence[Resource]]]) -> dict[str, Any]:
    members = [group(name, versions, top=False) for name, versions in groups.items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": members}


def group(name: str, versions: Iterable[str], *, top: bool) -> dict[str, Any]:
    """Describe one group. A document of its own also has kind and apiVersion."""
    entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    head = {"kind": "APIGroup", "apiVersion": "v1"} if top else {}
    return {**head, "name": name, "versions": entries, "preferredVersion": entries[0]}


def resource_list(group: str, version: str, members: Sequence[Resource]) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}",
        "resources": served.entries(members),
    }


def version(release: Release, *, python: str, platform: str) -> dict[str, str]:
    """Make the document of /version: the Kubernetes release that is served, with Sluice as its build."""
    major, minor = map(str, release)
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(release.minor - 1),
        "gitVersion": f"v{release}.{at(release, PATCH_LEVEL)}+sluice-{buildinfo.version()}",
        "gitCommit": buildinfo.commit(),
        "gitTreeState": buildinfo.tree_state(),
        "buildDate": buildinfo.build_date(),
        "goVersion": f"python{python}",
        "compiler": "cpython",
        "platform": platform,
    }
