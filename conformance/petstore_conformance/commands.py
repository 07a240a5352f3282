"""The command ``petstore-conformance``: tests a backend, or writes the project of a new one.

It imports what it needs when it runs: pytest rewrites no module that it finds imported.
"""

import asyncio
import io
import os
import secrets
import signal
import sys
import threading
import traceback
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from petstore import exit_status
from petstore.config.discovery import check_name
from petstore.config.errors import ConfigurationError
from petstore.config.loading import configure
from petstore.contract import SettingsError, UnavailableError
from petstore_conformance.faults.subjects import FaultOptions, Subject
from petstore_conformance.harness import documents
from petstore_conformance.templates import generator

_STATUSES: Final = (
    "Exit status: 0 compliant, or no violations; 1 not; 2 options or settings that cannot work;"
    " 69 the storage cannot be used; 75 nothing was wrong, but something was inconclusive;"
    " 130 interrupted."
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except KeyboardInterrupt:
        status = exit_status.INTERRUPTED
    except (ConfigurationError, SettingsError) as error:
        _warn(getattr(error, "warnings", ()))
        _print(str(error))
        status = exit_status.CONFIGURATION
    except UnavailableError as error:
        _print(f"the storage cannot be used: {error}")
        status = exit_status.UNAVAILABLE
    sys.exit(status)


def _print(message: str) -> None:
    print(f"petstore-conformance: {message}", file=sys.stderr)


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        _print(f"warning: {warning}")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="petstore-conformance", description="For authors of backends.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "test a backend, clause by clause or by faults"
    test = commands.add_parser("test", help=text, epilog=_STATUSES)
    _add_test_options(test)
    test.set_defaults(command=_test)
    new = commands.add_parser("new", help="write the project of a new backend")
    text = "its name: the project is written into a new folder of that name"
    new.add_argument("name", metavar="NAME", help=text)
    text = "what to begin with: SQL in a thread, or optimistic transactions on a server"
    new.add_argument("--template", choices=generator.TEMPLATES, required=True, help=text)
    new.set_defaults(command=_new)
    return parser


def _add_test_options(parser: ArgumentParser) -> None:
    subject = parser.add_mutually_exclusive_group(required=True)
    text = "the backend, configured as for serving"
    subject.add_argument("name", metavar="NAME", nargs="?", help=text)
    text = "instead, print each clause and its sentence, one per line"
    subject.add_argument("--list", action="store_true", help=text)
    add = parser.add_argument
    text = "run this clause only; may be repeated"
    add("--clause", metavar="CLAUSE", action="append", default=[], help=text)
    seed = secrets.randbelow(2**32)
    add("--seed", metavar="N", type=int, default=seed, help="repeat the calls of the run with it")
    text = "write JSON (default: to standard output, the progress to standard error)"
    add("--json", metavar="FILE", nargs="?", const="-", dest="report", help=text)
    text = "instead, kill services and search what their clients saw for contradictions"
    add("--faults", action="store_true", help=text)
    # An option that is not given has no value: the default is that of `FaultOptions`.
    add = parser.add_argument_group("with --faults", argument_default=SUPPRESS).add_argument
    add("--minutes", metavar="N", type=float, help="how long it takes (default: 2)")
    text = "run this fault only; may be repeated"
    add("--fault", metavar="FAULT", action="append", dest="only", help=text)
    text = "how long a call, and recovering, may take (default: 10)"
    add("--timeout-seconds", metavar="N", type=float, help=text)
    text = "the text in the settings that the proxy replaces (default: that of their URL)"
    add("--server", metavar="HOST:PORT", help=text)
    for verb in ("stop", "kill", "start", "empty", "save", "restore"):
        add(f"--server-{verb}", metavar="COMMAND", help=f"a shell command to {verb} the server")


def _new(options: Namespace) -> int:
    """Write the project. Raises an error for an invalid name, or if it is taken."""
    check_name(options.name)
    generator.write(options.name, options.template, Path(options.name))
    print(f"{options.name}/ is a working backend; backends/README.md says how to go on")
    return 0


def _test(options: Namespace) -> int:
    """Run what was chosen. Raises `SettingsError`, and the errors of opening a location."""
    if not __debug__:
        raise SettingsError(
            "the conformance kit consists of assertions, which python -O and PYTHONOPTIMIZE"
            " leave out: run it without them"
        )
    faults = _fault_options(options)
    if options.report not in (None, "-"):
        documents.check(Path(options.report))
    if options.list:
        return _list(options.report)
    chosen = _choose(options.name)
    for number in (signal.SIGTERM, signal.SIGHUP):  # no service and no location is left
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    opened = _open_scratch(chosen)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a message may hold any characters
        sys.stdout.reconfigure(errors="backslashreplace")
    if opened is None:
        status = 1
    elif faults:
        from petstore_conformance.faults import session

        status = session.run(opened, faults).status
    else:
        status = _run_clauses(options, opened)
    if any(not thread.daemon for thread in threading.enumerate()[1:]):
        sys.stdout.flush()
        os._exit(status)  # the plugin has left threads, for which Python would wait for ever
    return status


def _choose(name: str) -> Subject:
    """Return a backend and its settings, which are read as for serving."""
    configuration = configure(os.environ, {"PETSTORE_BACKEND": name}, keyless=True)
    _warn(configuration.warnings)
    plugin = configuration.plugin
    origin = plugin.distribution, plugin.version
    return Subject(plugin.name, name, plugin.backend, configuration.storage, *origin)


def _fault_options(options: Namespace) -> FaultOptions | None:
    """Return the options of fault injection, if that was chosen. Raises `SettingsError`."""
    known = set(FaultOptions.__struct_fields__) - {"seed", "report"}
    given = {name: value for name, value in vars(options).items() if name in known}
    if not options.faults:
        if given:
            name = {"only": "fault"}.get(min(given), min(given))
            raise SettingsError(f"--{name.replace('_', '-')} needs --faults")
        return None
    if options.clause:
        raise SettingsError("--clause and --faults exclude each other")
    if options.report == "-":
        raise SettingsError("--json needs a FILE with --faults")
    return FaultOptions(**given, seed=options.seed, report=options.report)


def _list(report: str | None) -> int:
    from petstore_conformance.harness.kit import sentences

    if report is None:
        print("\n".join(f"{name:<20}{sentence}" for name, sentence in sentences().items()))
    else:
        documents.write(report, [{"clause": n, "sentence": s} for n, s in sentences().items()])
    return 0


def _run_clauses(options: Namespace, chosen: Subject) -> int:
    from petstore_conformance import run
    from petstore_conformance.harness.kit import sentences

    if unknown := set(options.clause) - sentences().keys():
        name = min(unknown)
        close = get_close_matches(name, sentences(), 1)
        raise SettingsError(
            f"--clause: the contract has no clause {name} ('petstore-conformance test --list'"
            f" prints them).{f' Did you mean {close[0]}?' if close else ''}"
        )
    return run.run(chosen, set(options.clause), options.seed, options.report)


def _open_scratch(chosen: Subject) -> Subject | None:
    """Check that an empty location can be opened; the configured data is not touched.

    If that, or closing it, has not ended in time, prints where it waits, and returns None.
    """
    from petstore_conformance.harness import kit
    from petstore_conformance.harness.alarm import OverdueError, alarm, within

    overdue: list[OverdueError] = []
    what = "opening and closing an empty location"

    async def run() -> Subject:
        try:
            async with within(kit.CLAUSE_SECONDS, what):
                return await chosen.opened()
        except OverdueError as error:
            overdue.append(error)  # now to end its threads may take longer
            raise

    try:
        with alarm(kit.LIMIT_SECONDS, what):
            return asyncio.run(run())
    except OverdueError as error:
        overdue.append(error)
    cause = overdue[0].__cause__
    frames = traceback.extract_tb(cause.__traceback__ if cause else None)
    where = [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    _print("\n".join((f"{overdue[0]}; it waits here:", *where)))
    return None


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does, even if a shell has switched that off: `asyncio` then ends in order."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(number, frame)
