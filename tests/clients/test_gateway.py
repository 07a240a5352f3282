"""The clients of docs/clients.md behind a gateway whose errors are not the service's.

Needs what the tests of each client need; `make check-all` runs this, `make test` does not.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.clients.gateway import FAULTS, gateway
from tests.clients.page import block
from tests.clients.scripts import SCRIPTS, Script
from tests.support.interface import ORDERS, PETS
from tests.support.services import Live

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

NOT_SAID: Final = "JSON|KeyError|undefined|: TypeError: (?!terminated)"
"""What a client that relies on the service's body says instead of the status."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_client_repeats_what_a_gateway_lost_or_says_what_it_got(
    name: str, fresh: Live, tmp_path: Path
) -> None:
    with gateway(fresh) as broken:
        script = Script(name, fresh, tmp_path, broken.url)
        if name.startswith("petstore"):
            for times, fault in enumerate(FAULTS, 1):
                broken.lose(fault)
                assert script.run() == block("text", "ordered"), fault
                assert len(broken.requests) == 3, "create, list, order"
                assert not broken.early
                stored = [len(fresh.client.get(path).json()) for path in (PETS, ORDERS)]
                assert stored == [3 * times, times]
            script.give_up_at_once()
        for fault in FAULTS:
            broken.lose(fault)
            said = script.fail()
            reason = "peer closed|terminated|unexpected EOF" if fault == "cut" else rf"\b{fault}\b"
            assert re.search(reason, said), said
            assert not re.search(NOT_SAID, said), said
