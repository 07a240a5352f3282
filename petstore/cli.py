"""The petstore command. An error is one or two lines on standard error, and an exit status.

Each subcommand imports what it needs, so that ``--help`` is fast.
"""

import argparse
import errno
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from petstore import __version__, exit_status

_CANNOT_WRITE: Final = (
    errno.EBADF,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ENOSPC,
    errno.EPIPE,
)
"""Errors of a command that mean that its output cannot be written."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its status."""
    _open_closed_streams()
    _reset_signals()
    warnings.showwarning = lambda message, *_: _report(logging.WARNING, str(message))
    status = 0
    try:
        status = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()  # so that a failure is noticed here, not at interpreter exit
    except KeyboardInterrupt:
        status = exit_status.INTERRUPTED
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is buffered
        if not isinstance(error, BrokenPipeError):  # the reader of the pipe has seen enough
            status = _fail_to_write(error)
    sys.exit(status)


def _open_closed_streams() -> None:
    """Open what is closed of the standard streams: a socket would take its number.

    What is printed to a closed standard output fails, as on a full disk.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            mode = os.O_WRONLY if fd == 2 else os.O_RDONLY
            os.set_inheritable(os.open(os.devnull, mode), True)  # by workers, too
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:  # `print` would take standard output instead
        sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace")


def _reset_signals() -> None:
    """Undo what whatever started the command may have done to signals.

    With SIGCHLD ignored, the system does not tell how a process ended, nor when. A blocked signal
    never arrives. Ignored ones are left: a command that needs one handles it.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _run(arguments: Sequence[str]) -> int:
    try:
        options = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except Exception as error:
        status = _explain(error)
        if status is None:
            raise
        return status


def _explain(error: Exception) -> int | None:
    """Print what is wrong and return the exit status; None for an error that no user causes."""
    from petstore.config.errors import ConfigurationError
    from petstore.contract import (
        ChangeNeededError,
        SettingsError,
        UnavailableError,
        WrongStoreError,
    )
    from petstore.transfer.ndjson import InvalidLineError

    match error:
        case ConfigurationError():
            _warn(error.warnings)
            return _fail(str(error), exit_status.CONFIGURATION)
        case InvalidLineError():
            return _fail(str(error), exit_status.INVALID_DATA)
        case SettingsError() | ChangeNeededError():
            return _fail(str(error), exit_status.CONFIGURATION)
        case WrongStoreError():
            return _fail(str(error), exit_status.UNAVAILABLE)
        case UnavailableError():
            return _fail(f"the storage cannot be used: {error}", exit_status.UNAVAILABLE)
    return None


def _fail(message: str, status: int) -> int:
    _report(logging.ERROR, message)
    return status


def _fail_to_write(error: OSError) -> int:
    target = error.filename or "standard output"  # a scratch location may be on a full disk, too
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror
    return _fail(f"cannot write {target}: {reason}", exit_status.NOT_WRITTEN)


def _report(level: int, message: str) -> None:
    from petstore.observability import logs

    logs.report(message, level)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report an error in one line, like every other error, without the usage text."""
        self.exit(exit_status.CONFIGURATION, f"petstore: {message}. See: {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report unknown arguments here: the parser of a subcommand names its own help."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown


_SETTINGS: Final = (
    "Settings come from the environment, or from the TOML file that PETSTORE_CONFIG names."
    " 'petstore settings' prints all of them with their defaults; docs/operating.md says more."
)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="petstore", description="The pet store service.", epilog=_SETTINGS, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"petstore {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    text = "serve until SIGTERM or SIGINT"
    serve = commands.add_parser("serve", help=text, epilog=_SETTINGS, allow_abbrev=False)
    serve.add_argument(
        "--dev",
        action="store_true",
        help="for trying out: the memory backend unless another is set, and a generated key",
    )
    serve.add_argument("--backend", metavar="NAME", help="PETSTORE_BACKEND")
    serve.add_argument("--listen", metavar="HOST:PORT", help="PETSTORE_LISTEN")
    serve.add_argument("--workers", metavar="N", help="PETSTORE_WORKERS")
    serve.set_defaults(command=_serve)

    listing = commands.add_parser("backends", help="list the installed backends")
    listing.set_defaults(command=_backends)

    text = "open and check the storage; print the effective settings"
    check = commands.add_parser("check", help=text)
    text = "do not create or upgrade the store; say what would be done"
    check.add_argument("--read-only", action="store_true", help=text)
    check.set_defaults(command=_check)

    text = "print a TOML file of all settings with their defaults"
    settings = commands.add_parser("settings", help=text)
    text = "with the settings of this backend (default: PETSTORE_BACKEND)"
    settings.add_argument("--backend", metavar="NAME", help=text)
    settings.set_defaults(command=_settings)

    keys = commands.add_parser("keys", help="make API keys")
    key_commands = keys.add_subparsers(title="commands", metavar="COMMAND", required=True)
    new = key_commands.add_parser("new", help="make a key and its line for the key file")
    new.add_argument(
        "name", metavar="NAME", nargs="?", default="client", help="the client that the key is for"
    )
    new.set_defaults(command=_new_key)

    for name, (text, file) in _TRANSFERS.items():
        transfer = commands.add_parser(name, help=text)
        transfer.add_argument("file", metavar="FILE", nargs="?", default="-", help=file)
        transfer.set_defaults(command=_transfer, name=name)

    document = commands.add_parser("openapi", help="print the OpenAPI document")
    document.set_defaults(command=_openapi)
    return parser


_TRANSFERS: Final = {
    "export": (
        "write all pets, orders and records of idempotency keys as NDJSON",
        "the target; replaced once the export is complete (default: standard output)",
    ),
    "import": (
        "store what an export has",
        "checked completely before anything is stored (default: standard input)",
    ),
    "verify": ("compare an export with the store", "the export (default: standard input)"),
}
"""The commands that move a store and compare the result: what each does, and what its file is."""


def _serve(options: argparse.Namespace) -> int:
    # Before the slow imports: a signal during the start is a stop, too. Nothing is open yet.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as behind "&"
        signal.signal(signal.SIGINT, lambda *_: os._exit(exit_status.INTERRUPTED))
    if not options.dev:  # a key file that changes during the start is reloaded soon after
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from petstore.config.loading import configure
    from petstore.observability import logs
    from petstore.server import serve

    flags = {
        "PETSTORE_BACKEND": options.backend,
        "PETSTORE_LISTEN": options.listen,
        "PETSTORE_WORKERS": options.workers,
    }
    configuration = configure(os.environ, flags, dev=options.dev)
    _warn(configuration.warnings)
    logs.set_up(configuration.settings.log, configuration.settings.log_level)
    serve.serve(configuration)
    return 0


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        _report(logging.WARNING, warning)


def _backends(_: argparse.Namespace) -> int:
    from petstore.config import discovery
    from petstore.config.errors import ConfigurationError

    status = 0
    for point in discovery.installed():
        try:
            plugin = discovery.load(point)
        except ConfigurationError as error:
            status = _fail(str(error), exit_status.CONFIGURATION)
            continue
        backend = plugin.backend
        names = "shared", "durable", "snapshots"
        capabilities = [name for name in names if getattr(backend, name)]
        can = ", ".join(capabilities) or "neither shared nor durable"
        origin = f"{plugin.distribution} {plugin.version}"
        print(f"{plugin.name}  {origin}  contract {backend.contract}  {can}")
    return status


def _check(options: argparse.Namespace) -> int:
    from msgspec.structs import replace

    from petstore.config.errors import PREFIX
    from petstore.config.loading import configure
    from petstore.config.settings import masked
    from petstore.contract import ChangeNeededError
    from petstore.observability import logs
    from petstore.observability.tracing import Tracing
    from petstore.server import serve

    configuration = configure(os.environ, {}, keyless=True)
    _warn(configuration.warnings)
    settings, storage = configuration.settings, configuration.storage
    shown = masked(settings, PREFIX) | masked(storage, configuration.plugin.prefix)
    for name, text in shown.items():
        print(f"{name}={text}")
    if "check" in storage.__struct_fields__:  # see backends/README.md
        storage = replace(storage, check=True)
        configuration = replace(configuration, storage=storage)
    logs.set_up(settings.log, settings.log_level)  # a backend may log what it has found
    Tracing.from_environment()  # raises if OpenTelemetry cannot start
    try:
        store, seconds = serve.open_once(configuration, changes=not options.read_only)
    except ChangeNeededError as error:
        print(f"ok: {configuration.plugin.title} can be reached, but {error}")
    else:
        print(f"ok: {configuration.plugin.title} responded in {seconds * 1000:.1f} ms")
        if configuration.plugin.backend.durable:
            print(f"store: {store} (to serve no other one: PETSTORE_STORE={store})")
    if not configuration.keys:
        _warn(["no API key is set, and the service does not start without one"])
    return 0


def _new_key(options: argparse.Namespace) -> int:
    from petstore.config.keys import new_key
    from petstore.observability.logs import print_error

    key, line = new_key(options.name)
    print_error("The API key, shown this once, then its line for the key file:")
    print(key, line, sep="\n")
    return 0


def _transfer(options: argparse.Namespace) -> int:
    from petstore.transfer import command

    calls = {"export": command.export, "import": command.import_, "verify": command.verify}
    return calls[options.name](options.file)


def _settings(options: argparse.Namespace) -> int:
    from petstore.config import discovery
    from petstore.config.errors import PREFIX
    from petstore.config.example import example
    from petstore.config.settings import gather

    name = options.backend or gather(os.environ, {}).values.get(f"{PREFIX}BACKEND")
    print(example(discovery.find(name) if name else None), end="")
    return 0


def _openapi(_: argparse.Namespace) -> int:
    from petstore.config.settings import Settings, gather
    from petstore.http.app import document

    settings = Settings.read(gather(os.environ, {}).values)
    sys.stdout.buffer.write(document(settings.root_path) + b"\n")
    return 0
