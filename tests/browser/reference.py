"""The reference page, as a reader uses it."""

from typing import Any, Final

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import (
    element_to_be_clickable,
    visibility_of_element_located,
)
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.services import Live
from tests.support.waiting import HANG_SECONDS

NARROW: Final = 390
WIDE: Final = 1280


class Page:
    """The reference page in a browser."""

    def __init__(self, browser: Chrome, service: Live, fragment: str = "") -> None:
        self.wait = WebDriverWait(browser, HANG_SECONDS)
        self.browser = browser
        browser.get(f"{service.url}/docs{fragment}")
        self.see("h1")

    def see(self, css: str) -> WebElement:
        """Return an element as soon as it is visible."""
        element = self.wait.until(visibility_of_element_located((By.CSS_SELECTOR, css)), css)
        assert isinstance(element, WebElement)
        return element

    def click(self, css: str) -> None:
        """Click an element as soon as it is clickable."""
        element = self.wait.until(element_to_be_clickable((By.CSS_SELECTOR, css)), css)
        assert isinstance(element, WebElement)
        element.click()

    def texts(self, css: str) -> list[str]:
        """Return the texts of all matching elements, including hidden ones."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        found: list[str] = self.browser.execute_script(script, css)
        return found

    def open(self, operation: str) -> str:
        """Open an operation; return the CSS selector of its block."""
        block = f"#{operation}"
        if not self.browser.find_elements(By.CSS_SELECTOR, f"{block}[open]"):
            self.click(f"{block} > summary")
        self.see(f"{block} .send")
        return block

    def unfold_all(self) -> None:
        """Open everything that can be folded."""
        self.browser.execute_script(
            "for (const part of document.querySelectorAll('details')) part.open = true"
        )

    def clipboard(self) -> str:
        """Return the text that was copied last."""
        permissions = {"permissions": ["clipboardReadWrite"]}
        self.browser.execute_cdp_cmd("Browser.grantPermissions", permissions)
        script = "navigator.clipboard.readText().then(arguments[0])"
        copied: str = self.browser.execute_async_script(script)
        return copied

    def key(self, key: str) -> None:
        """Enter the API key."""
        self.see("#key").send_keys(key)

    def fill(self, css: str, text: str) -> None:
        """Replace the text of a field."""
        self.click(css)
        self.see(css).send_keys(Keys.CONTROL, "a", Keys.NULL, text)

    def send(self, operation: str) -> str:
        """Send an operation with the values on the page; return the status code shown."""
        block = self.open(operation)
        self.click(f"{block} .send")
        self.see(f"{block} .result")
        return self.see(f"{block} .status").text[:3]


def operations(service: Live) -> dict[str, dict[str, Any]]:
    """Return the operations of the OpenAPI document by their names."""
    paths = service.client.get("/openapi.json").json()["paths"]
    return {found["operationId"]: found for item in paths.values() for found in item.values()}


def show(browser: Chrome, width: int, scheme: str = "light") -> None:
    """Set the width of the window and the preferred color scheme."""
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
