"""A real browser: Chromium without a window, that reaches this machine only."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

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


def log(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    """Return what the browser has recorded since the last call."""
    entries: list[dict[str, Any]] = browser.get_log(kind)  # type: ignore[no-untyped-call]
    return entries
