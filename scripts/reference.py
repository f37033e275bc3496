"""Write the pages of the handbook that are read from declarations: docs/flags.md and docs/feature-gates.md.

`--check` compares instead, for `make lint`.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import Release
from apiserver.config import config, features, reference
from apiserver.config.flags import Flag
from apiserver.resources import GATES, RESOURCES
from apiserver.schema.featuregate import ALL_ALPHA, ALL_BETA, Gate

ROOT = pathlib.Path(__file__).resolve().parent.parent
BY = "`scripts/reference.py` writes this page from the declarations, and `make lint` compares it."

FLAGS = f"""\
# Flags

```console
$ sluice serve --help
```

Each flag also reads an environment variable: `SLUICE_`, and its name in capital letters with `_` for `-`. The command line wins. Sluice
reports all errors at once and exits with code 2. Names and defaults are kube-apiserver's where it has the flag.

{BY}
"""

FEATURES = f"""\
# Feature gates

`--feature-gates Gate=true,Other=false` switches gates. Names, stages, defaults and errors are those of the Kubernetes release that
Sluice is. `AllAlpha` and `AllBeta` switch all gates of a stage that have no value of their own. The metric
`kubernetes_feature_enabled` shows each gate. [operations.md](operations.md#feature-gates) says what happens to stored fields of a
gate that is off.

{BY}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the pages, and fail if one differs")
    check = parser.parse_args(arguments).check
    wrong = [page for page, text in pages().items() if not (page.exists() and page.read_text() == text)]
    for page in wrong:
        if check:
            print(
                f"{page.relative_to(ROOT)} differs from the declarations: python scripts/reference.py", file=sys.stderr
            )
        else:
            page.write_text(pages()[page])
    return int(check and bool(wrong))


def pages() -> Mapping[pathlib.Path, str]:
    """Return each page with its text."""
    docs = ROOT / "docs"
    return {
        docs / "flags.md": "\n".join(flag_lines()) + "\n",
        docs / "feature-gates.md": "\n".join(gate_lines()) + "\n",
    }


def flag_lines() -> Iterator[str]:
    yield FLAGS
    yield "## Commands\n"
    yield "| command | does |"
    yield "|---|---|"
    for command in reference.all_commands():
        words = " ".join(filter(None, ("sluice", command.name, command.arguments)))
        yield f"| `{_cell(words)}` | {_cell(command.summary)} |"
    for topic in reference.by_topic(config.FLAGS):
        yield f"\n## {topic.title} flags\n"
        yield "| flag | default | commands | effect |"
        yield "|---|---|---|---|"
        for flag in topic.flags:
            short = f"`-{flag.short}`, " if flag.short else ""
            value = "" if flag.switch else f" {flag.value}"
            yield (
                f"| {short}`{_cell(f'{flag.option}{value}')}` | {_cell(_default(flag))} | {_commands(flag)} "
                f"| {_cell(flag.text)}{_repeated(flag)} |"
            )


def _default(flag: Flag) -> str:
    """Return the default, or that of each command if they differ."""
    defaults = {command: flag.default_for(command) for command in flag.commands}
    shown = {command: "required" if text is None else f"`{text}`" if text else "" for command, text in defaults.items()}
    if len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return ", ".join(f"{command}: {text or 'none'}" for command, text in shown.items())


def _commands(flag: Flag) -> str:
    actions = f" ({', '.join(flag.actions)})" if flag.actions else ""
    return f"{', '.join(flag.commands)}{actions}"


def _repeated(flag: Flag) -> str:
    return ". May be repeated" if flag.many and "several times" not in flag.text else ""


def _cell(text: str) -> str:
    """Return a text that stays in its cell, and has no HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")


def gate_lines() -> Iterator[str]:
    declared = dict.fromkeys((*features.GATES, *GATES, *(gate for kind in RESOURCES for gate in _of(kind))))
    served = releases.SUPPORTED
    yield FEATURES
    yield f"| gate | {' | '.join(map(str, served))} | needs |"
    yield f"|---|{'---|' * len(served)}---|"
    for gate in sorted((ALL_ALPHA, ALL_BETA, *declared), key=lambda gate: gate.name):
        states = (_state(gate, release) for release in served)
        needs = ", ".join(f"`{needed.name}`" for needed in gate.needs)
        yield f"| `{gate.name}` | {' | '.join(states)} | {needs} |"


def _of(kind: object) -> Sequence[Gate]:
    gates: Sequence[Gate] = getattr(kind, "gates", ())
    return gates


def _state(gate: Gate, release: Release) -> str:
    at = gate.at(release)
    if at is None:
        return "does not exist"
    return f"{at.stage.value or 'GA'}, {'on' if at.default else 'off'}{', locked' if at.locked else ''}"


if __name__ == "__main__":
    sys.exit(main())
