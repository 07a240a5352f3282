"""The command that prints a script with which a shell completes all words of `petstore`."""

import argparse
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

_BASH: Final = """\
_petstore() {
  local words
  case " ${COMP_WORDS[*]:1:COMP_CWORD-1} " in
%s  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _petstore petstore
"""


def add_command(parser: argparse.ArgumentParser, commands: Any, key_commands: Any) -> None:
    """Add the command, last of all: it knows those that were added before."""
    shells = ("bash", "fish", "zsh")
    text = "print a script that completes this command's words in a shell"
    completion = commands.add_parser("completion", help=text)
    completion.add_argument("shell", choices=shells)
    names = {"": [*commands.choices], "keys": [*key_commands.choices], "completion": shells}
    parsers = {"": parser, **commands.choices}
    parsers |= {f"keys {name}": each for name, each in key_commands.choices.items()}
    completion.set_defaults(command=partial(_complete, parsers, names))


def _complete(
    parsers: Mapping[str, argparse.ArgumentParser],
    names: Mapping[str, Sequence[str]],
    options: argparse.Namespace,
) -> int:
    """Print a shell's script: static, so that completing a word starts no Python.

    parsers -- by the words that select them; the empty string is the whole command's
    names -- the names of their subcommands
    """
    words = {
        path: [*names.get(path, ()), "--help", *re.findall(r"--[\w-]+", parser.format_usage())]
        for path, parser in sorted(parsers.items(), reverse=True)  # "keys new" before "keys"
    }
    if options.shell == "fish":
        for path, known in words.items():
            *_, last = path.rpartition(" ")
            seen = f"__fish_seen_subcommand_from {last}" if path else "__fish_use_subcommand"
            for word in known:
                kind = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
                print(f"complete -c petstore -n '{seen}' {kind}")
        return 0
    if options.shell == "zsh":
        print("autoload -Uz compinit bashcompinit && compinit && bashcompinit")
    cases = ""
    for path, known in words.items():
        pattern = f'" {path} "*' if path else "*"
        cases += f'    {pattern}) words="{" ".join(known)}" ;;\n'
    print(_BASH % cases, end="")
    return 0
