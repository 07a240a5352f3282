"""`petstore-conformance new NAME`: a template under another name, as a project of its own."""

from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Final

from petstore.contract import SettingsError

TEMPLATES: Final = ("file", "server")


def write(name: str, template: str, folder: Path) -> None:
    """Write the project of a backend with this name, from one of `TEMPLATES`, into a new folder.

    Raises `SettingsError` if the folder exists.
    """
    try:
        folder.mkdir()
    except OSError as error:
        raise SettingsError(f"cannot create {folder}: {error.strerror}") from None
    for path, text in _project(name, template):
        file = folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(_rename(text, template, name))
    (folder / "ci.sh").chmod(0o755)


def _project(name: str, template: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each file, and its text, which has the names of the template."""
    templates = files("petstore_conformance") / "templates"
    for folder in ("common", template):
        for file in (templates / folder).iterdir():
            if file.name == "conformance.py":
                yield "tests/test_conformance.py", file.read_text()
            elif file.is_file():
                package = f"petstore_{name}/" if file.name.endswith(".py") else ""
                yield f"{package}{file.name}", file.read_text()
    yield f"petstore_{name}/py.typed", ""
    # The license is not in the package: an installer puts it beside the metadata.
    yield "LICENSE", distribution("petstore-service").read_text("licenses/LICENSE") or ""


def _rename(text: str, template: str, name: str) -> str:
    """Replace the names of a template, which are made so that no prose contains them."""
    text = text.replace(f"petstore_conformance.templates.{template}", f"petstore_{name}")
    for word in (template, "any"):
        text = text.replace(f"{word}_template", name)
        text = text.replace(f"{word.upper()}_TEMPLATE", name.upper())
        text = text.replace(f"{word.capitalize()}Template", name.capitalize())
    return text
