"""The interactive reference, in a real browser: authorise, try operations out, load nothing else.

Needs Chromium and its driver; `make check-all` runs it, `make test` does not.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import (
    element_to_be_clickable,
    invisibility_of_element_located,
    visibility_of_element_located,
)
from selenium.webdriver.support.wait import WebDriverWait

from tests.live import Live

SECONDS: Final = 20
"""How long the page may take for one step."""

FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # containers run the tests as root, for whom Chromium has no sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have a small /dev/shm
    "--window-size=1200,1600",
    "--no-first-run",
    # Chromium itself stays on this machine too.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


def program(*names: str) -> str:
    """Return the path of the first of these programs that is installed, or skip the test."""
    for name in names:
        if path := shutil.which(name):
            return path
    reason = f"not installed: {' or '.join(names)}"
    if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    """Start a browser with a profile of its own, that records requests and console messages."""
    options = ChromeOptions()
    options.binary_location = program("chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    # With both paths given, selenium looks for nothing to download.
    driver = Chrome(options, ChromeService(program("chromedriver")))
    try:
        driver.get("about:blank")
        log(driver, "performance")  # takes out what Chromium's own start page loaded
        yield driver
    finally:
        driver.quit()


class Page:
    """The reference page, as somebody uses it."""

    def __init__(self, browser: Chrome) -> None:
        self.wait = WebDriverWait(browser, SECONDS)

    def see(self, css: str) -> WebElement:
        """Return an element as soon as it is visible."""
        element = self.wait.until(visibility_of_element_located((By.CSS_SELECTOR, css)), css)
        assert isinstance(element, WebElement)
        return element

    def click(self, css: str) -> None:
        """Click an element as soon as that is possible."""
        element = self.wait.until(element_to_be_clickable((By.CSS_SELECTOR, css)), css)
        assert isinstance(element, WebElement)
        element.click()

    def authorise(self, key: str) -> None:
        """Give the key in the dialog."""
        self.click(".auth-wrapper .authorize")
        self.see(".modal-ux input").send_keys(key)
        self.click(".modal-ux .auth-btn-wrapper .authorize")
        self.click(".modal-ux .btn-done")
        self.wait.until(invisibility_of_element_located((By.CSS_SELECTOR, ".modal-ux")))

    def execute(self, operation: str) -> str:
        """Try an operation out as the page proposes it; return the status code that it shows."""
        block = f"[id$='-{operation}']"
        self.click(f"{block} .opblock-summary-control")
        self.click(f"{block} .execute")
        return self.see(f"{block} .live-responses-table .response .response-col_status").text


def log(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    """Return what the browser has recorded since the last call."""
    entries: list[dict[str, Any]] = browser.get_log(kind)  # type: ignore[no-untyped-call]
    return entries


def requests(browser: Chrome) -> list[str]:
    """Return the addresses of all requests since the last call; images in the page are none."""
    urls = []
    for entry in log(browser, "performance"):
        message: dict[str, Any] = json.loads(entry["message"])["message"]
        match message:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                urls.append(url)
            case {"method": "Network.webSocketCreated", "params": {"url": url}}:
                urls.append(url)
    return [url for url in urls if urlsplit(url).scheme != "data"]


def test_the_reference_tries_operations_out_and_loads_nothing_from_elsewhere(
    service: Live, browser: Chrome
) -> None:
    browser.get(f"{service.url}/docs")
    page = Page(browser)
    page.see("[id$='-listPets']")

    page.authorise(service.key)
    assert page.execute("createPet") == "201"
    assert page.execute("listPets") == "200"

    loaded = requests(browser)
    assert f"{service.url}/openapi.json" in loaded
    assert [url for url in loaded if not url.startswith(f"{service.url}/")] == []
    assert [url for url in loaded if "cursor=" in url] == [], "examples are not sent along"
    assert [entry for entry in log(browser, "browser") if entry["level"] == "SEVERE"] == []
