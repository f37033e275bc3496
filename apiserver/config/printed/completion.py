"""Write the completion script of a shell.

A script holds everything that it offers, so that the shell starts no program when the user presses the tab key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from apiserver.config import commands, config, reference
from apiserver.config.command_line import HELP, VERSION
from apiserver.config.flags import Flag
from apiserver.config.reference import Command

BOOLEANS = ("true", "false")
DESCRIPTION_CHARACTERS = 70
"""Characters of a description beside a name: more would fold in a terminal of usual width."""


def script(shell: str) -> str:
    """Return the script for a shell of `commands.SHELLS`."""
    return {"bash": bash, "zsh": zsh, "fish": fish}[shell]()


def names(flag: Flag) -> list[str]:
    """Return the options of a flag."""
    short = [f"-{flag.short}"] if flag.short else []
    return [*short, flag.option, *([f"--no-{flag.name}"] if flag.switch else [])]


def values(flag: Flag) -> Sequence[str]:
    return BOOLEANS if flag.switch else flag.choices


def takes_files(flag: Flag) -> bool:
    return "FILE" in flag.value and not flag.switch


def takes_folders(flag: Flag) -> bool:
    return "DIR" in flag.value and not flag.switch


def described(text: str) -> str:
    """Return the first part of a description, in one short line."""
    first = re.split(r"[;:(]|\. ", text)[0].strip().rstrip(".")
    return first if len(first) <= DESCRIPTION_CHARACTERS else f"{first[:DESCRIPTION_CHARACTERS].rpartition(' ')[0]} …"


def _tree() -> Mapping[str, list[Command]]:
    """Return the actions of each command; a command without actions is its own."""
    tree: dict[str, list[Command]] = {}
    for command in reference.all_commands():
        tree.setdefault(command.word, []).append(command)
    return tree


def _unique() -> list[Flag]:
    return list({flag.name: flag for flag in config.FLAGS}.values())


# ---------------------------------------------------------------------------------------------------------------- bash

_BASH = """\
# bash completion for sluice. Written by `sluice completion bash`.
# Works without the package bash-completion, and in bash 3.2.

_sluice_files() {{
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen "$1" -- "$2"))
}}

# Offers words for the text behind the last comma.
_sluice_list() {{
    local before="" last="$2"
    if [[ "$2" == *,* ]]; then
        before="${{2%,*}},"
        last="${{2##*,}}"
    fi
    COMPREPLY=($(compgen -P "$before" -W "$1" -- "$last"))
}}

# Completes the value of a flag. Fails if the flag takes none.
_sluice_value() {{
    case "$1" in
{values}
        *) return 1 ;;
    esac
}}

_sluice() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" flag="" command="" action="" word i
    COMPREPLY=()
    # bash splits --flag=value into three words.
    if [[ "$cur" == "=" ]]; then
        flag="${{COMP_WORDS[COMP_CWORD - 1]}}"
        cur=""
    elif ((COMP_CWORD > 1)) && [[ "${{COMP_WORDS[COMP_CWORD - 1]}}" == "=" ]]; then
        flag="${{COMP_WORDS[COMP_CWORD - 2]}}"
    fi
    if [[ -n "$flag" ]]; then
        case "$flag" in
            {switches}) COMPREPLY=($(compgen -W "true false" -- "$cur")) ;;
            *) _sluice_value "$flag" "$cur" ;;
        esac
        return 0
    fi
    if ((COMP_CWORD > 1)) && _sluice_value "${{COMP_WORDS[COMP_CWORD - 1]}}" "$cur"; then
        return 0
    fi
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{first}" -- "$cur"))
        return 0
    fi
    command="${{COMP_WORDS[1]}}"
    for ((i = 2; i < COMP_CWORD; i++)); do
        word="$command ${{COMP_WORDS[i]}}"
        case "$word" in
            {actions}) action="${{COMP_WORDS[i]}}"; break ;;
        esac
    done
    case "$command${{action:+ $action}}" in
{commands}
    esac
    return 0
}}

complete -F _sluice sluice
"""


def bash() -> str:
    tree, flags = _tree(), _unique()
    cases = list[str]()
    for word, found in tree.items():
        if found[0].action:
            offered = " ".join([*(command.action for command in found), *HELP])
            cases.append(f'        {word}) COMPREPLY=($(compgen -W "{offered}" -- "$cur")) ;;')
        for command in found:
            offered = " ".join([*(name for flag in command.flags for name in names(flag)), *HELP])
            begun = f'        "{command.name}") '
            if command.arguments:
                cases.append(
                    f'{begun}if [[ "$cur" == -?* ]]; then COMPREPLY=($(compgen -W "{offered}" -- "$cur")); '
                    'else _sluice_files -f "$cur"; fi ;;'
                )
            else:
                cases.append(f'{begun}COMPREPLY=($(compgen -W "{offered}" -- "$cur")) ;;')
    return _BASH.format(
        values="\n".join(_bash_value(flag) for flag in flags if not flag.switch),
        switches="|".join(flag.option for flag in flags if flag.switch),
        first=" ".join([*commands.SUMMARY, *HELP, VERSION]),
        actions="|".join(f'"{c.name}"' for found in tree.values() for c in found if c.action),
        commands="\n".join(cases),
    )


def _bash_value(flag: Flag) -> str:
    if takes_files(flag):
        does = '_sluice_files -f "$2"'
    elif takes_folders(flag):
        does = '_sluice_files -d "$2"'
    elif flag.choices and flag.many:
        does = f'_sluice_list "{" ".join(flag.choices)}" "$2"'
    elif flag.choices:
        does = f'COMPREPLY=($(compgen -W "{" ".join(flag.choices)}" -- "$2"))'
    else:
        does = ":"
    return f"        {'|'.join(names(flag))}) {does} ;;"


# ---------------------------------------------------------------------------------------------------------------- zsh


def zsh() -> str:
    tree = _tree()
    blocks = [
        "#compdef sluice",
        "# zsh completion for sluice. Written by `sluice completion zsh`.",
        _zsh_choice("_sluice", commands.SUMMARY, f"'{VERSION}[print the version]'"),
    ]
    for word, found in tree.items():
        if found[0].action:
            choices = {command.action: command.summary for command in found}
            blocks.append(_zsh_choice(f"_sluice_{word}", choices))
        blocks += [_zsh_command(command) for command in found]
    blocks.append('if [ "$funcstack[1]" = "_sluice" ]; then\n    _sluice "$@"\nelse\n    compdef _sluice sluice\nfi')
    return "\n\n".join(blocks) + "\n"


def _zsh_choice(function: str, choices: Mapping[str, str], *extra: str) -> str:
    """Return the function that completes a command or action, and then what is behind it."""
    offered = "\n".join(f"        {_quoted(f'{name}:{described(text)}')}" for name, text in choices.items())
    cases = "\n".join(f"                {name}) {function}_{name} ;;" for name in choices)
    options = " \\\n        ".join(["'(-h --help)'{-h,--help}'[print the help]'", *extra])
    return f"""{function}() {{
    local curcontext="$curcontext" state line
    local -a offered
    offered=(
{offered}
    )
    _arguments -C \\
        {options} \\
        '1: :->name' \\
        '*:: :->rest'
    case $state in
        name) _describe -t commands command offered ;;
        rest)
            case $words[1] in
{cases}
            esac
            ;;
    esac
}}"""


def _zsh_command(command: Command) -> str:
    function = "_".join(["_sluice", command.word, *filter(None, [command.action])])
    specs = [spec for flag in command.flags for spec in _zsh_flag(flag)]
    files = [_quoted("*:file:_files")] if command.arguments else []
    lines = " \\\n        ".join(["_arguments", "'(-h --help)'{-h,--help}'[print the help]'", *specs, *files])
    return f"{function}() {{\n    {lines}\n}}"


def _zsh_flag(flag: Flag) -> Iterator[str]:
    said = re.sub(r"([\[\]\\:])", r"\\\1", described(flag.text))
    many = "*" if flag.many else ""
    if flag.switch:
        yield _quoted(f"{flag.option}=-[{said}]:: :({' '.join(BOOLEANS)})")
        yield _quoted(f"--no-{flag.name}[not\\: {said}]")
        return
    label = re.sub(r"([\[\]\\:])", r"\\\1", flag.value)
    if takes_files(flag):
        action = "_files"
    elif takes_folders(flag):
        action = "_files -/"
    elif flag.choices and flag.many:
        action = f"_sequence compadd - {' '.join(flag.choices)}"
    elif flag.choices:
        action = f"({' '.join(flag.choices)})"
    else:
        action = " "
    equals = "=" if flag.option.startswith("--") else ""
    yield _quoted(f"{many}{flag.option}{equals}[{said}]:{label}:{action}")
    if flag.short:
        yield _quoted(f"{many}-{flag.short}[{said}]:{label}:{action}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ---------------------------------------------------------------------------------------------------------------- fish


def fish() -> str:
    lines = [
        "# fish completion for sluice. Written by `sluice completion fish`.",
        "complete -c sluice -f",
        "complete -c sluice -s h -l help -d 'print the help'",
        "complete -c sluice -n __fish_use_subcommand -l version -d 'print the version'",
    ]
    for word, summary in commands.SUMMARY.items():
        lines.append(f"complete -c sluice -n __fish_use_subcommand -a {word} -d {_fish_quoted(described(summary))}")
    for word, found in _tree().items():
        seen = f"__fish_seen_subcommand_from {word}"
        actions = " ".join(command.action for command in found)
        for command in found:
            here = seen
            if command.action:
                missing = f"{seen}; and not __fish_seen_subcommand_from {actions}"
                here = f"{seen}; and __fish_seen_subcommand_from {command.action}"
                lines.append(
                    f"complete -c sluice -n {_fish_quoted(missing)} -a {command.action} "
                    f"-d {_fish_quoted(described(command.summary))}"
                )
            if command.arguments:
                lines.append(f"complete -c sluice -n {_fish_quoted(here)} -F")
            lines += [line for flag in command.flags for line in _fish_flag(flag, here)]
    return "\n".join(lines) + "\n"


def _fish_flag(flag: Flag, here: str) -> Iterator[str]:
    begun = f"complete -c sluice -n {_fish_quoted(here)}"
    option = f"-s {flag.name}" if len(flag.name) == 1 else f"-l {flag.name}"
    option += f" -s {flag.short}" if flag.short else ""
    said = f"-d {_fish_quoted(described(flag.text))}"
    if flag.switch:
        yield f"{begun} {option} -a {_fish_quoted(' '.join(BOOLEANS))} {said}"
        yield f"{begun} -l no-{flag.name} {said}"
    elif takes_files(flag):
        yield f"{begun} {option} -rF {said}"
    elif takes_folders(flag):
        yield f"{begun} {option} -xa '(__fish_complete_directories)' {said}"
    elif flag.choices and flag.many:
        offered = f"(__fish_append , {' '.join(flag.choices)})"
        yield f"{begun} {option} -xa {_fish_quoted(offered)} {said}"
    elif flag.choices:
        yield f"{begun} {option} -xa {_fish_quoted(' '.join(flag.choices))} {said}"
    else:
        yield f"{begun} {option} -x {said}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
