"""The petstore command. Mistakes end in one or two lines on standard error and a status.

Status 2 is a mistake in the configuration, 69 (EX_UNAVAILABLE) a storage that cannot be reached.
What a subcommand needs is imported by it, so that ``--help`` answers at once.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from petstore.configuration import Configuration

CONFIGURATION: Final = 2
"""The exit status of a mistake in the configuration."""

UNAVAILABLE: Final = 69
"""The exit status where the storage cannot be reached."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its status."""
    try:
        try:
            sys.exit(_run(_parser().parse_args(arguments)))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # so that a reader who is gone is met here, not after the end
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _run(options: argparse.Namespace) -> int:
    from petstore.contract import SettingsError, UnavailableError
    from petstore.settings import ConfigurationError

    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ConfigurationError as error:
        _warn(error.warnings)
        return _fail(str(error), CONFIGURATION)
    except SettingsError as error:
        return _fail(str(error), CONFIGURATION)
    except UnavailableError as error:
        return _fail(f"cannot reach the storage: {error}", UNAVAILABLE)


def _fail(message: str, status: int) -> int:
    print(f"petstore: {message}", file=sys.stderr)
    return status


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Tell a mistake as all mistakes are told, instead of after a usage of many lines."""
        self.exit(CONFIGURATION, f"petstore: {message}. See: {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="petstore", description="The pet store service.", allow_abbrev=False)
    parser.add_argument(
        "--version", action="version", version=f"petstore {version('petstore-service')}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    serve = commands.add_parser("serve", help="serve until SIGTERM or SIGINT", allow_abbrev=False)
    serve.add_argument(
        "--dev",
        action="store_true",
        help="for trying out: memory unless told otherwise, a key made up for the run",
    )
    serve.add_argument("--backend", metavar="NAME", help="PETSTORE_BACKEND")
    serve.add_argument("--listen", metavar="HOST:PORT", help="PETSTORE_LISTEN")
    serve.add_argument("--workers", metavar="N", help="PETSTORE_WORKERS")
    serve.set_defaults(command=_serve)

    listing = commands.add_parser("backends", help="list the installed backends")
    listing.set_defaults(command=_backends)

    check = commands.add_parser("check", help="open the storage; print the effective settings")
    check.set_defaults(command=_check)

    kit = commands.add_parser("conformance", help="run the conformance kit against a backend")
    kit.add_argument("name", metavar="NAME", help="the backend, configured as for serving")
    kit.set_defaults(command=_conformance)

    keys = commands.add_parser("keys", help="make API keys")
    key_commands = keys.add_subparsers(title="commands", metavar="COMMAND", required=True)
    new = key_commands.add_parser("new", help="make a key and its line for the key file")
    new.add_argument("name", metavar="NAME", nargs="?", default="client", help="whose key it is")
    new.set_defaults(command=_new_key)

    export = commands.add_parser("export", help="write all animals and orders as NDJSON")
    text = "where to; replaced once the export is complete (default: standard output)"
    export.add_argument("file", metavar="FILE", nargs="?", default="-", help=text)
    export.add_argument("--from", dest="url", metavar="URL", help="a running service")
    export.set_defaults(command=_move)
    import_ = commands.add_parser("import", help="store what an export has written")
    text = "checked as a whole before anything is stored (default: standard input)"
    import_.add_argument("file", metavar="FILE", nargs="?", default="-", help=text)
    import_.set_defaults(command=_move, importing=True)

    document = commands.add_parser("openapi", help="print the OpenAPI document")
    document.set_defaults(command=_openapi)
    return parser


def _serve(options: argparse.Namespace) -> int:
    from petstore import log, startup
    from petstore.configuration import configure

    flags = {
        "PETSTORE_BACKEND": options.backend,
        "PETSTORE_LISTEN": options.listen,
        "PETSTORE_WORKERS": options.workers,
    }
    configuration = configure(os.environ, flags, dev=options.dev)
    log.set_up(configuration.settings.log)
    _warn(configuration.warnings)
    startup.serve(configuration, os.environ, flags)
    return 0


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"petstore: warning: {warning}", file=sys.stderr)


def _backends(_: argparse.Namespace) -> int:
    from petstore import backends
    from petstore.settings import ConfigurationError

    status = 0
    for point in backends.installed():
        try:
            plugin = backends.load(point)
        except ConfigurationError as error:
            status = _fail(str(error), CONFIGURATION)
            continue
        backend = plugin.backend
        capabilities = [name for name in ("shared", "durable") if getattr(backend, name)]
        can = ", ".join(capabilities) or "neither shared nor durable"
        origin = f"{plugin.distribution} {plugin.version}"
        print(f"{plugin.name}  {origin}  contract {backend.contract}  {can}")
        for line in backends.described(plugin):
            print(f"  {line}")
    return status


def _check(_: argparse.Namespace) -> int:
    from petstore import backends, startup
    from petstore.configuration import configure
    from petstore.settings import PREFIX, Settings, mask, setting_names

    configuration = configure(os.environ, {}, keyless=True)
    _warn(configuration.warnings)
    settings = configuration.settings
    for name, field in setting_names(Settings, PREFIX).items():
        print(f"{name}={mask(field, getattr(settings, field))}")
    for name, text in backends.shown(configuration.plugin, configuration.storage).items():
        print(f"{name}={text}")
    seconds = startup.open_once(configuration)
    print(f"ok: {configuration.plugin.title} answered in {seconds * 1000:.1f} ms")
    return 0


def _conformance(options: argparse.Namespace) -> int:
    from petstore.configuration import configure
    from petstore.settings import ConfigurationError

    configuration = configure(os.environ, {"PETSTORE_BACKEND": options.name}, keyless=True)
    _warn(configuration.warnings)
    _open_scratch(configuration)
    try:
        from petstore.conformance import command
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the conformance kit needs {error.name}; install petstore-service with its extra"
            " 'conformance'"
        ) from None
    plugin = configuration.plugin
    return command.run(plugin.name, plugin.backend, configuration.storage)


def _open_scratch(configuration: "Configuration") -> None:
    """See whether an empty place can be opened; the data that is configured is not touched."""
    import asyncio

    async def open_() -> None:
        backend = configuration.plugin.backend
        async with backend.scratch(configuration.storage) as place, backend.open(place):
            pass

    asyncio.run(open_())


def _new_key(options: argparse.Namespace) -> int:
    from petstore.auth import KeysError, new_key

    try:
        key, line = new_key(options.name)
    except KeysError as error:
        return _fail(str(error), CONFIGURATION)
    print("The API key, shown this once, then its line for the key file:", file=sys.stderr)
    print(key, line, sep="\n")
    return 0


def _move(options: argparse.Namespace) -> int:
    from petstore.moving import command

    if "importing" in options:
        return command.import_(options.file)
    return command.export(options.file, options.url)


def _openapi(_: argparse.Namespace) -> int:
    from petstore.app import document
    from petstore.settings import Settings, gather

    settings = Settings.read(gather(os.environ, {}).values)
    sys.stdout.buffer.write(document(settings.root_path) + b"\n")
    return 0
