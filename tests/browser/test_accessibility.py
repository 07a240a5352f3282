"""The reference for everybody: axe-core finds nothing; a keyboard and a small screen are enough.

Needs Chromium and its driver, Node.js and npm; `make check-all` runs this, `make test` does not. To
update the checker, in tests/browser/axe, with NAME@VERSION of the package:
  npm install --save-exact --package-lock-only --omit-lockfile-registry-resolved=true NAME@VERSION
"""

from pathlib import Path
from typing import Any, Final

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import invisibility_of_element_located

from tests.browser.reference import NARROW, WIDE, Page, operations, show
from tests.support.environments import node_modules
from tests.support.services import Live

pytestmark = pytest.mark.slow

AXE: Final = Path(__file__).parent / "axe"


def findings(browser: Chrome) -> list[str]:
    """Return what axe-core finds on the page as it is, and what it cannot decide."""
    browser.execute_script((node_modules(AXE) / "axe-core/axe.min.js").read_text())
    result: dict[str, Any] = browser.execute_async_script("axe.run(document).then(arguments[0])")
    assert len(result["passes"]) > 20, "it has looked"
    found = [*result["violations"], *result["incomplete"]]
    return [f"{rule['id']}: {node['html']}" for rule in found for node in rule["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_checker_finds_nothing_with_everything_open(
    service: Live, browser: Chrome, width: int, scheme: str
) -> None:
    show(browser, width, scheme)
    page = Page(browser, service)
    assert findings(browser) == []
    page.key(service.key)
    page.send("listPets")
    page.send("createPet")
    page.unfold_all()
    assert len(page.texts("details[open].operation")) == len(operations(service))
    assert findings(browser) == []
    spare = "const { scrollWidth, clientWidth } = document.documentElement;"
    spare += "return clientWidth - scrollWidth"
    assert browser.execute_script(spare) == 0, "nothing is wider than the window"


def test_the_first_key_skips_to_the_content(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    ActionChains(browser).send_keys(Keys.TAB).perform()
    page.see(".skip")
    ActionChains(browser).send_keys(Keys.ENTER, Keys.TAB).perform()
    assert browser.execute_script("return document.activeElement.matches('main *')")


def test_the_guide_and_the_operations_are_there_without_javascript(
    service: Live, browser: Chrome
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(f"{service.url}/docs")

    def shown(css: str) -> list[str]:
        elements = browser.find_elements(By.CSS_SELECTOR, css)
        return [element.text for element in elements if element.is_displayed()]

    assert "Deprecation" in shown("h2")
    assert 'curl "$SERVER/pets"' in shown(".guide pre")[0]
    assert "sends no requests" in shown("noscript p")[0]
    assert len(shown(".operation > summary")) == len(operations(service))
    assert shown("button, input, select, textarea") == [""] * 4  # the language


def test_the_errors_are_folded(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    block = page.open("placeOrder")
    page.click(f"{block} [data-status='409'] summary")
    page.see(f"{block} [data-status='409'] pre")
    page.click(f"{block} [data-status='409'] summary")
    gone = invisibility_of_element_located((By.CSS_SELECTOR, f"{block} [data-status='409'] pre"))
    page.wait.until(gone)
