"""PUBLIC: commands of other distributions, such as ``petstore conformance``.

A distribution adds one by an entry point in the group `COMMANDS`, whose name is that of the command
and whose value is a `Command`. It is loaded only if the command is called.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:  # it is slow to import, and `petstore --help` needs only `COMMANDS`
    from petstore.contract import Backend

COMMANDS: Final = "petstore.commands"


class Chosen(NamedTuple):
    """A backend that is installed, its settings from environment and file, and its origin.

    distribution, version -- of the installed distribution that provides it
    """

    name: str
    backend: "Backend"
    settings: Any
    distribution: str
    version: str


class Host(NamedTuple):
    """What the service does for a command.

    choose -- returns the backend of a name, configured as for serving; raises `SettingsError`
    check_name -- raises `SettingsError` for what cannot be the name of a backend
    """

    choose: Callable[[str], Chosen]
    check_name: Callable[[str], None]


class Command(Protocol):
    """A command: a module or an object with these two functions."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments of the command to its parser."""

    def run(self, options: Namespace, host: Host) -> int:
        """Run the command; return the exit status.

        The errors of the storage contract that it raises become one line and an exit status.
        """
