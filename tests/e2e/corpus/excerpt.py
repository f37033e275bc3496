"""The project's own part of the corpus, for a checkout that stands alone: some scenarios of each kind, with their recorded answers.

`python -m tests.e2e.corpus.excerpt` cuts it anew out of the corpus beside the checkout.
"""

from __future__ import annotations

import ast
import json
import pathlib
import shutil

from tests.e2e.corpus import ways

SCENARIOS = (
    "apply.basic", "delete.plain", "format.gzip", "list.get.rv", "list.chunks.snapshot", "patch.json", "patch.concurrent",
    "routes.openapi", "watch.live", "watch.selector", "create.kinds", "create.dryrun", "update.immutable",
)  # fmt: skip
PROGRAM = ("run", "harness.py")


def answers(file: pathlib.Path) -> dict[str, object]:
    """The recording of the chosen scenarios."""
    recorded = json.loads(file.read_text())
    return {**recorded, "scenarios": {name: recorded["scenarios"][name] for name in SCENARIOS}}


def source(file: pathlib.Path) -> str:
    """A file of scenarios with the chosen ones, and everything that is no scenario."""
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.AsyncFunctionDef) and (name := _scenario(node)) and name not in SCENARIOS:
            del lines[node.decorator_list[0].lineno - 1 : node.end_lineno]
    return "".join(lines)


def _scenario(node: ast.AsyncFunctionDef) -> str:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.args[0], ast.Constant):
            return str(decorator.args[0].value)
    return ""


def files(corpus: pathlib.Path) -> dict[str, str]:
    """Everything that the excerpt consists of."""
    found = {name: (corpus / name).read_text() for name in PROGRAM}
    found |= {f"scenarios/{file.name}": source(file) for file in sorted((corpus / "scenarios").glob("*.py"))}
    for file in sorted(corpus.glob("golden*.json")):
        found[file.name] = json.dumps(answers(file), indent=0, ensure_ascii=False) + "\n"
    return found


def main() -> None:
    shutil.rmtree(ways.EXCERPT, ignore_errors=True)
    (ways.EXCERPT / "scenarios").mkdir(parents=True)
    for name, text in files(ways.CORPUS).items():
        (ways.EXCERPT / name).write_text(text)


if __name__ == "__main__":
    main()
