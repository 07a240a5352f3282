"""`petstore new-backend NAME`: a sketch under another name, as a project of its own."""

from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from petstore.config.discovery import check_name
from petstore.config.errors import ConfigurationError

SKETCHES: Final = ("file", "server")

EXECUTABLE: Final = "ci.sh"


def write(name: str, sketch: str, folder: Path) -> None:
    """Write the project of a backend into a new folder.

    name -- of the backend
    sketch -- one of `SKETCHES`

    Raises `ConfigurationError` if the name is invalid or the folder exists.
    """
    check_name(name)
    try:
        folder.mkdir()
    except OSError as error:
        raise ConfigurationError(f"cannot create {folder}: {error.strerror}") from None
    for path, text in _project(name, sketch):
        file = folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(_rename(text, sketch, name))
    (folder / EXECUTABLE).chmod(0o755)


def _project(name: str, sketch: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each file, and its text, which has the names of the sketch."""
    sketches = files("petstore") / "sketches"
    for file in _texts(sketches / "common"):
        yield file.name, file.read_text()
    for file in _texts(sketches / sketch):
        package = file.name != "conformance.py"
        path = f"petstore_{name}/{file.name}" if package else "tests/test_conformance.py"
        yield path, file.read_text()
    yield f"petstore_{name}/py.typed", ""
    # The license is not in the package: an installer puts it beside the metadata.
    yield "LICENSE", distribution("petstore-service").read_text("licenses/LICENSE") or ""


def _texts(folder: Traversable) -> list[Traversable]:
    return [file for file in folder.iterdir() if file.is_file()]


def _rename(text: str, sketch: str, name: str) -> str:
    """Replace the names of a sketch, which are made so that no prose contains them."""
    text = text.replace(f"petstore.sketches.{sketch}", f"petstore_{name}")
    for word in (sketch, "any"):
        text = text.replace(f"{word}_sketch", name)
        text = text.replace(f"{word.upper()}_SKETCH", name.upper())
        text = text.replace(f"{word.capitalize()}Sketch", name.capitalize())
    return text
