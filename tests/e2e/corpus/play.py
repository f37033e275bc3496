"""The corpus's own program, with resourceVersions compared as Kubernetes lets clients compare them: within one resource.

The recording comes from etcd, where all resources count together and versions are short; its names for versions (`rv@7.1`, `<rv@7.1`,
`>=seen`) say how a version relates to every other that the scenario saw. Here a version is related only to those of its own resource,
and a list's version in the name of a step is left out however many digits it has. Within a resource everything is compared as before.

Run as a program: the folder of the corpus, then what its `run` takes.
"""

from __future__ import annotations

import contextvars
import importlib
import pathlib
import re
import runpy
import sys
from typing import Any

_LONG = re.compile(r"(?<=resourceVersion=)\d{13,}\b")
"""In the name of a step; shorter ones the harness replaces itself."""
_resource: contextvars.ContextVar[str] = contextvars.ContextVar("resource", default="")
"""What the current step is about. Steps of one scenario may overlap, each in a task of its own."""


def session(harness: Any) -> type:
    """The harness's scenario with a record of versions for each resource."""

    class Session(harness.Session):  # type: ignore[misc]
        def __init__(self, side: Any, name: str) -> None:
            self.versions: dict[str, dict[str, str]] = {}
            self.greatest: dict[str, int] = {}
            self.given: set[str] = set()
            super().__init__(side, name)

        @property
        def rvs(self) -> dict[str, str]:
            return self.versions.setdefault(_resource.get(), {})

        @rvs.setter
        def rvs(self, _: dict[str, str]) -> None:
            """The harness starts with none, as we do."""

        @property
        def maxrv(self) -> int:
            return self.greatest.get(_resource.get(), 0)

        @maxrv.setter
        def maxrv(self, version: int) -> None:
            self.greatest[_resource.get()] = version

        def note_rv(self, rv: object) -> None:
            """As the harness does, which numbers the versions of a step whatever they belong to."""
            if not isinstance(rv, str) or not rv.isdigit() or not int(rv) or rv in self.rvs:
                return
            step = f"rv@{len(self.steps)}."
            number = 1 + sum(
                name.lstrip("<").startswith(step) for known in self.versions.values() for name in known.values()
            )
            self.rvs[rv] = f"{'<' if int(rv) < self.maxrv else ''}{step}{number}"
            self.maxrv = max(self.maxrv, int(rv))

        def title(self, text: str) -> str:
            found: str = super().title(_LONG.sub(self._as_short, text))
            return found

        def _as_short(self, match: re.Match[str]) -> str:
            """A list's version as the harness writes it; others have names already, or are made up and stay as they are."""
            version = match.group()
            return "RV" if version in self.given and version not in self.rvs else version

        # Where the harness gets to know what a step is about.

        async def fetch(self, method: str, path: str, *rest: Any, **options: Any) -> Any:
            answer = await super().fetch(method, path, *rest, **options)
            if not isinstance(answer, str):
                self.given.add(answer.rv)
            return answer

        def record(self, a: Any, method: str, path: str, *rest: Any, **options: Any) -> Any:
            _resource.set(_of(path))
            return super().record(a, method, path, *rest, **options)

        async def quiet(self, method: str, path: str, **options: Any) -> Any:
            _resource.set(_of(path))
            return await super().quiet(method, path, **options)

        async def read(self, w: Any, *rest: Any, **options: Any) -> Any:
            _resource.set(_of(w.args[1]))
            return await super().read(w, *rest, **options)

    def _of(path: str) -> str:
        return next((part for part in path.partition("?")[0].split("/") if part in harness.PLURALS), "")

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
