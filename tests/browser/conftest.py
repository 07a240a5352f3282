"""A real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.browser.chromium import FLAGS, log
from tests.support.environments import program
from tests.support.waiting import HANG_SECONDS


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    """Start a browser with a new profile; it logs requests and console messages."""
    options = ChromeOptions()
    options.binary_location = program("chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    # With both paths given, selenium downloads nothing.
    driver = Chrome(options, ChromeService(program("chromedriver")))
    try:
        driver.set_script_timeout(HANG_SECONDS)
        driver.get("about:blank")
        log(driver, "performance")  # discards the requests of Chromium's own start page
        yield driver
    finally:
        driver.quit()
