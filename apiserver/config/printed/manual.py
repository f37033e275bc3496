"""Write the man page. Read it with `sluice man | man -l -`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from apiserver import buildinfo
from apiserver.config import config, reference
from apiserver.config.flags import Flag

EXIT_CODES = {
    "0": "The command did its work, or the server was stopped by a signal.",
    "1": "The command failed: the message says why, and the remedy.",
    "2": "The command line, the environment, the configuration file or a file that they name is wrong. All errors are printed.",
}


def page() -> str:
    """Return the page sluice(1) in the language of man pages."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH SLUICE 1 "" "Sluice {buildinfo.version()}" "User Commands"'
    # Flush left, without hyphenation: long names leave gaps in adjusted lines, and a name with a hyphen is another name.
    yield ".ad l"
    yield ".nh"
    yield ".SH NAME"
    yield r"sluice \- a Kubernetes aggregated API server that keeps its objects in Redis Streams"
    yield ".SH SYNOPSIS"
    yield ".B sluice"
    yield r".I COMMAND"
    yield r"[\fIFLAGS\fR]"
    yield ".SH DESCRIPTION"
    yield from _text(
        "Sluice serves kinds in the style of resource.k8s.io from a log on Redis Streams. Clients reach it through kube-apiserver, "
        "or directly."
    )
    yield ".SH COMMANDS"
    for command in reference.all_commands():
        yield f".SS {_escaped(' '.join(filter(None, ['sluice', command.name, command.arguments])))}"
        yield from _text(f"{command.summary[0].upper()}{command.summary[1:]}.")
        for example in command.examples:
            yield from _text(example.does)
            yield ".PP"
            yield ".nf"
            yield f".RS 4\n{_escaped(example.line)}\n.RE"
            yield ".fi"
    yield ".SH FLAGS"
    yield from _text("Each flag also reads the environment variable that is named with it. The command line wins.")
    for topic in reference.by_topic(config.FLAGS):
        yield f".SS {topic.title} flags"
        for flag in topic.flags:
            yield from _flag(flag)
    yield ".SH EXIT STATUS"
    for code, means in EXIT_CODES.items():
        yield ".TP"
        yield f".B {code}"
        yield _escaped(means)
    yield ".SH SEE ALSO"
    yield r"\fBkubectl\fR(1), \fBvalkey\-server\fR(1)"


def _flag(flag: Flag) -> Iterator[str]:
    yield ".TP"
    placeholder = "true|false" if flag.switch else flag.value
    between = "[=" if flag.switch else " "
    end = "]" if flag.switch else ""
    short = f"\\fB\\-{flag.short}\\fR, " if flag.short else ""
    yield f"{short}\\fB{_escaped(flag.option)}\\fR{between}\\fI{_escaped(placeholder)}\\fR{end}"
    end = "" if flag.text.endswith(".") else "."
    yield _escaped(f"{flag.text[0].upper()}{flag.text[1:]}{end}")
    yield ".br"
    yield _escaped(
        "; ".join([f"Commands: {', '.join(flag.commands)}", *_defaults(flag), f"environment: {flag.variable}"]) + "."
    )


def _defaults(flag: Flag) -> Iterator[str]:
    found = {command: flag.default_for(command) for command in flag.commands}
    shown = {command: "required" if text is None else text for command, text in found.items() if text != ""}
    if len(set(found.values())) == 1:
        yield from (f"default: {text}" if text != "required" else text for text in [*shown.values()][:1])
    else:
        yield "default: " + ", ".join(f"{text} ({command})" for command, text in shown.items())


def _text(text: str) -> Iterator[str]:
    yield ".PP"
    yield _escaped(text)


def _escaped(text: str) -> str:
    """Return text that means itself: a hyphen can be copied, and no line begins a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("`", "\\(ga")
    return re.sub(r"^([.'])", r"\\&\1", plain, flags=re.MULTILINE)
