"""Copies of a store that is a file or a folder, with all beside it whose names begin so."""

import shutil
from pathlib import Path


def save(store: Path, copy: Path) -> None:
    """Copy a store, to which nobody writes, into a new folder."""
    copy.mkdir()
    for path in _parts(store):
        copying = shutil.copytree if path.is_dir() else shutil.copy2
        copying(path, copy / path.name)


def restore(store: Path, copy: Path) -> None:
    """Move a copy to the place of the store, by renaming at last, as tools for backups do.

    A file that has not changed stays, as others may hold a lock of it.
    """
    saved = {store.with_name(path.name): path for path in _parts(copy / store.name)}
    for path in set(_parts(store)) - saved.keys():
        _remove(path)
    for path, source in saved.items():
        if path.is_file() and path.read_bytes() == source.read_bytes():
            continue
        new, old = path.with_name(f".new-{path.name}"), path.with_name(f".old-{path.name}")
        shutil.move(source, new)
        if path.is_dir():
            path.rename(old)
        new.replace(path)
        _remove(old)


def _parts(store: Path) -> list[Path]:
    return [path for path in store.parent.iterdir() if path.name.startswith(store.name)]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
