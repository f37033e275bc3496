"""The core group of a server without kube-apiserver: version `v1` with the few kinds of stand-alone servers.

kubectl sends the items of a `List` only to a server that has the version of that kind, which is `v1`. Upstream: kubernetes/apiserver
`pkg/endpoints/discovery/legacy.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from apiserver.discovery import answers, served
from apiserver.discovery.aggregated import Aggregated
from apiserver.discovery.answers import Answer, Document, Question
from apiserver.schema import machinery
from apiserver.schema.resource import Resource

ROOT, VERSION = "/api", "v1"


class Core:
    """Answers below `/api`. The documents have no apiVersion, as upstream's."""

    def __init__(self, resources: Sequence[Resource] = ()) -> None:
        versions = {"kind": "APIVersions", "apiVersion": "", "versions": [VERSION], "serverAddressByClientCIDRs": []}
        listed = {
            "kind": "APIResourceList",
            "apiVersion": "",
            "groupVersion": VERSION,
            "resources": served.entries(resources),
        }
        self._aggregated = Aggregated({served.CORE: {VERSION: resources}})
        self.documents = {
            ROOT: Document(versions, machinery.API_VERSIONS),
            f"{ROOT}/{VERSION}": Document(listed, machinery.API_RESOURCE_LIST),
        }

    def answer(self, question: Question) -> Answer | None:
        """Answer a question; None for other paths. Raises upstream's StatusErrors."""
        path = question.path.removesuffix("/")
        if not f"{path}/".startswith(f"{ROOT}/"):
            return None
        document = answers.routed(self.documents.get(path), question)
        aggregated = self._aggregated.answer(question) if path == ROOT else None
        return aggregated or answers.answered(document, question)
