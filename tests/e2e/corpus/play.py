"""The corpus's own program, with a name for each version of each resource.

The recording comes from etcd, where all resources count together, so one number is one version. Here two resources may be at the same
number, and what an answer says is looked up among the versions of its own resource only.

The recorded server keeps the namespaces itself and knows at once which of them are being deleted; an aggregated server learns that from
a watch, and a scenario goes on when it has.

Run as a program: the folder of the corpus, then what its `run` takes.
"""

from __future__ import annotations

import asyncio
import importlib
import pathlib
import re
import runpy
import sys
from typing import Any

NAMESPACE = re.compile(r"/api/v1/namespaces/(?P<name>[^/?]+)")
LEARNS_SECONDS = 120.0


def session(harness: Any) -> type:
    """The harness's scenario with a record of versions for each resource."""

    class Session(harness.Session):  # type: ignore[misc]
        plural: str

        def __init__(self, side: Any, name: str) -> None:
            self.versions: dict[str, dict[str, str]] = {}
            self.resource = ""
            """The resource of the current answer. The harness orders versions by `plural`, that of the last step."""
            super().__init__(side, name)

        @property
        def rvs(self) -> dict[str, str]:
            return self.versions.setdefault(self.resource, {})

        @rvs.setter
        def rvs(self, _: dict[str, str]) -> None:
            """The harness starts with none, as we do."""

        def note_rv(self, rv: object) -> None:
            """As the harness does, which numbers the versions of a step whatever they belong to."""
            if not isinstance(rv, str) or not rv.isdigit() or not int(rv) or rv in self.rvs:
                return
            step = f"rv@{len(self.steps)}."
            names = [name.lstrip("<") for known in self.versions.values() for name in known.values()]
            number = 1 + sum(name.startswith(step) for name in names)
            ordered = self.resource == self.plural
            self.rvs[rv] = f"{'<' if ordered and int(rv) < self.maxrv else ''}{step}{number}"
            if ordered:
                self.newest[self.plural] = max(self.maxrv, int(rv))

        def about(self, path: str) -> None:
            super().about(path)
            self.resource = self.plural

        async def fetch(self, method: str, path: str, *rest: Any, **options: Any) -> Any:
            """Unrecorded requests have a resource too, and are no step."""
            answer = await super().fetch(method, path, *rest, **options)
            step = self.plural
            self.about(path)
            self.plural = step
            return answer

        async def core(self, method: str, path: str, *rest: Any, **options: Any) -> Any:
            answer = await super().core(method, path, *rest, **options)
            if method == "DELETE" and (namespace := NAMESPACE.fullmatch(path)) and not self.side.standalone:
                async with asyncio.timeout(LEARNS_SECONDS):
                    while not await self.knows_deleted(namespace["name"]):
                        pass
            return answer

        async def knows_deleted(self, namespace: str) -> bool:
            """Whether the server that is judged takes nothing new in it. Nothing is created by asking."""
            collection = f"/namespaces/{namespace}/resourceclaims?dryRun=All"
            answer = await self.fetch("POST", collection, body=self.claim("probe"))
            return not isinstance(answer, str) and answer.status in (403, 404)

    return Session


def main(folder: str, *words: str) -> None:
    program = pathlib.Path(folder) / "run"
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    harness = importlib.import_module("harness")
    harness.Session = session(harness)  # type: ignore[attr-defined]
    sys.argv = [str(program), *words]
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
