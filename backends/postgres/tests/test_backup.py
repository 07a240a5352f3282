"""The commands for a backup in the README of this package."""

import os
import re
import subprocess
from pathlib import Path

from backends.postgres.tests.binaries import environment
from backends.postgres.tests.places import create
from backends.postgres.tests.servers import Server

README = Path(__file__).parents[1] / "README.md"
COMMANDS = re.findall(r"^\$ (pg_.+)$", README.read_text(), re.MULTILINE)


def test_a_dump_is_restored_as_the_readme_says(failing: Server, tmp_path: Path) -> None:
    url = failing.url(sslmode="disable")
    path = f"{failing.binaries}:{os.environ['PATH']}"
    settings = {"PATH": path, "PETSTORE_POSTGRES_URL": url}
    assert create(url, schema="petstore") == 1
    dump, restore = COMMANDS
    for command in (
        dump,
        'psql -qc "DROP SCHEMA petstore CASCADE" "$PETSTORE_POSTGRES_URL"',
        restore,
    ):
        environ = environment(failing.binaries) | settings
        subprocess.run(["bash", "-euc", command], cwd=tmp_path, env=environ, check=True)
    assert create(url, schema="petstore") == 2
