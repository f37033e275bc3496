"""The corpus's own program, with a name for each version of each resource.

The recording comes from etcd, where all resources count together, so one number is one version. Here two resources may be at the same
number, and what an answer says is looked up among the versions of its own resource only.

Run as a program: the folder of the corpus, then what its `run` takes.
"""

from __future__ import annotations

import importlib
import pathlib
import runpy
import sys
from typing import Any


def session(harness: Any) -> type:
    """The harness's scenario with a record of versions for each resource."""

    class Session(harness.Session):  # type: ignore[misc]
        plural: str

        def __init__(self, side: Any, name: str) -> None:
            self.versions: dict[str, dict[str, str]] = {}
            self.resource = ""
            """Of the answer at hand. `plural`, of the last step, is what the harness orders versions by."""
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
            """What is not recorded has a resource too, and is no step."""
            answer = await super().fetch(method, path, *rest, **options)
            step = self.plural
            self.about(path)
            self.plural = step
            return answer

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
