"""The interactive reference in a real browser: complete, working, and loading nothing else.

Needs Chromium and its driver; `make check-all` runs it, `make test` does not. With
PETSTORE_SCREENSHOT=docs/reference.png it also writes the screenshot of the README.
"""

import ast
import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import (
    element_to_be_clickable,
    invisibility_of_element_located,
    visibility_of_element_located,
)
from selenium.webdriver.support.wait import WebDriverWait

from petstore.http.errors import ErrorCode
from tests.browser.chromium import log
from tests.support.environments import program
from tests.support.services import Live, environment
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow

SECONDS: Final = HANG_SECONDS
"""The time limit for one step of the page."""

SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (400, 1200)

READABLE: Final = 4.5
"""The minimum contrast between text and its background (WCAG 2.2, 1.4.3)."""

PAIRS: Final = (
    *((text, background) for text in ("text", "soft") for background in ("page", "raised", "line")),
    *((text, "page") for text in ("accent", "danger", "get", "post", "patch")),
    *((text, "raised") for text in ("accent", "danger", "get", "post", "patch")),
    ("on-accent", "accent"),
    ("on-code", "code"),
)
"""Names of colors in the stylesheet: those of text, and those of the background behind it."""


LANGUAGES: Final = ("curl", "python", "typescript")

SAMPLES: Final = {
    "createPet": "/v1/pets/1",
    "listPets": "/v1/pets",
    "getPet": "/v1/pets/1",
    "placeOrder": "/v1/store/orders/1",
    "listOrders": "/v1/store/orders",
    "getOrder": "/v1/store/orders/1",
    "updateOrder": "/v1/store/orders/1",
}
"""The operations in an order in which their samples succeed on an empty store, and what each
prints: what a GET of this path returns afterwards."""


class Page:
    """The reference page, as a reader uses it."""

    def __init__(self, browser: Chrome, service: Live) -> None:
        self.wait = WebDriverWait(browser, SECONDS)
        self.browser = browser
        browser.get(f"{service.url}/docs")
        self.see("[id$='-listPets']")
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
        block = f"[id$='-{operation}']"
        if not self.browser.find_elements(By.CSS_SELECTOR, f"{block}.is-open"):
            self.click(f"{block} .opblock-summary-control")
        self.see(f"{block} .responses-table")
        return block

    def clipboard(self) -> str:
        """Return the text that was copied last."""
        permissions = {"permissions": ["clipboardReadWrite"]}
        self.browser.execute_cdp_cmd("Browser.grantPermissions", permissions)
        script = "navigator.clipboard.readText().then(arguments[0])"
        copied: str = self.browser.execute_async_script(script)
        return copied

    def authorize(self, key: str) -> None:
        """Enter the key in the dialog."""
        self.click(".auth-wrapper .authorize")
        self.see(".modal-ux input").send_keys(key)
        self.click(".modal-ux .auth-btn-wrapper .authorize")
        self.click(".modal-ux .btn-done")
        self.wait.until(invisibility_of_element_located((By.CSS_SELECTOR, ".modal-ux")))

    def fill(self, css: str, text: str) -> None:
        """Replace the text of a field."""
        self.click(css)
        self.see(css).send_keys(Keys.CONTROL, "a", Keys.NULL, text)

    def execute(self, operation: str) -> str:
        """Execute an operation with the values on the page; return the status code shown."""
        block = self.open(operation)
        self.click(f"{block} .execute")
        return self.see(f"{block} .live-responses-table .response .response-col_status").text


def run(command: list[str], service: Live, text: str | None = None) -> str:
    """Run a command with a service's key as `KEY`; return its standard output."""
    done = subprocess.run(
        command,
        input=text,
        env=environment() | {"KEY": service.key},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


def run_sample(language: str, sample: str, service: Live) -> object:
    """Run a sample of the page; return the value that it prints."""
    if language == "curl":
        return json.loads(run(["bash", "-eu"], service, sample))
    if language == "python":
        return ast.literal_eval(run([sys.executable, "-"], service, sample))
    node = program("node")
    printed = run([node, "--input-type=module", "-"], service, sample)
    return json.loads(run([node, "-p", f"JSON.stringify({printed})"], service))


def requests(browser: Chrome) -> list[str]:
    """Return the URLs of all requests since the last call, without inline images."""
    urls = []
    for entry in log(browser, "performance"):
        message: dict[str, Any] = json.loads(entry["message"])["message"]
        match message:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                urls.append(url)
            case {"method": "Network.webSocketCreated", "params": {"url": url}}:
                urls.append(url)
    return [url for url in urls if urlsplit(url).scheme != "data"]


def bodies(browser: Chrome) -> list[str]:
    """Return the bodies of all requests since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in log(browser, "performance")]
    sent = [message["params"].get("request", {}) for message in messages]
    return [request["postData"] for request in sent if "postData" in request]


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


def brightness(color: str) -> float:
    """Return the relative luminance of a color, #rgb or #rrggbb (WCAG 2.2)."""
    digits = re.sub("^#(.)(.)(.)$", r"#\1\1\2\2\3\3", color)[1:]
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colors (WCAG 2.2)."""
    dark, bright = sorted((brightness(one), brightness(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_the_reference_executes_operations_and_loads_nothing_from_other_hosts(
    service: Live, browser: Chrome
) -> None:
    page = Page(browser, service)
    page.authorize(service.key)
    assert page.execute("createPet") == "201"
    assert page.execute("listPets") == "200"

    loaded = requests(browser)
    assert f"{service.url}/openapi.json" in loaded
    assert [url for url in loaded if not url.startswith(f"{service.url}/")] == []
    assert [url for url in loaded if "cursor=" in url] == [], "examples of parameters are not sent"
    assert [entry for entry in log(browser, "browser") if entry["level"] == "SEVERE"] == []


def test_the_guide_is_on_the_page(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    assert browser.title == "Pet store service: reference"
    assert page.texts("h1") == ["Pet store service1.0.0"]
    topics = ["Keys", "Pages", "Errors", "Retries", "Rate limits", "Deprecation", "Operations"]
    assert page.texts(".info h2") == topics
    codes = [[code, str(int(code.status))] for code in ErrorCode]
    rows = page.texts(".info tbody td:not(:last-child)")
    assert [rows[i : i + 2] for i in range(0, len(rows), 2)] == codes
    assert all(page.texts(".info tbody td:last-child")), "each code has an explanation"
    assert len(page.texts(".info pre")) >= 5


def test_the_contents_lead_to_every_topic_and_operation(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    topics = page.texts(".info h2")
    assert page.texts("#contents .section") == topics
    entries = [
        found["summary"] + " (deprecated)" * found.get("deprecated", False)
        for found in operations(service).values()
    ]
    assert page.texts("#contents .operation") == entries
    assert page.texts("#contents .deprecated") == ["Get a pet by its id (deprecated)"]
    page.click("#contents [href$='-placeOrder']")
    page.see("[id$='-placeOrder'] .execute")
    assert browser.current_url.endswith("#/Store/placeOrder")


def test_every_operation_shows_examples_of_its_request_and_of_every_response(
    service: Live, browser: Chrome
) -> None:
    page = Page(browser, service)
    for name, operation in operations(service).items():
        block = page.open(name)
        assert page.texts(f"{block} .opblock-description p")
        assert page.texts(f"{block} .response .response-col_status") == [*operation["responses"]]
        assert page.texts(f"{block} .fields dt"), "the fields of the body of a success"
        for status in operation["responses"]:
            response = f"{block} .response[data-code='{status}']"
            example = json.loads("".join(page.texts(f"{response} .microlight")))
            if status >= "400":
                assert str(example["status"]) == status
        if "requestBody" in operation:
            assert json.loads("".join(page.texts(f"{block} textarea")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_samples_run_as_they_are_on_the_page(
    fresh: Live, browser: Chrome, language: str
) -> None:
    page = Page(browser, fresh)
    for operation, path in SAMPLES.items():
        css = f"{page.open(operation)} [data-language={language}] code"
        (sample,) = page.texts(css)
        assert run_sample(language, sample, fresh) == fresh.client.get(path).json(), sample
    assert fresh.client.get(path).json()["status"] == "completed"
    assert {*SAMPLES} == {*operations(fresh)}


def test_a_chosen_language_holds_for_all_samples_and_each_can_be_copied(
    service: Live, browser: Chrome
) -> None:
    page = Page(browser, service)
    page.click(f"{page.open('createPet')} label:has([value=python])")
    for operation in ("createPet", "listPets", "placeOrder"):
        block = page.open(operation)
        (sample,) = page.texts(f"{block} [data-language=python] code")
        page.click(f"{block} [data-language=python] .copy")
        assert page.see(f"{block} [data-language=python] output").text == "Copied"
        assert page.clipboard() == sample


def test_a_reader_sees_the_base_url_and_the_first_operation_without_a_click(
    service: Live, browser: Chrome
) -> None:
    page = Page(browser, service)
    page.see("[id$='-listPets'] .parameters")
    page.see("[id$='-listPets'] .response .fields")
    assert len(page.texts(".opblock.is-open")) == 1
    assert urlsplit(browser.current_url).fragment == ""
    page.click(".info .copy")
    assert page.clipboard() == f"{service.url}/v1"
    page.click("[id$='-listPets'] .opblock-summary-control")
    page.wait.until(invisibility_of_element_located((By.CSS_SELECTOR, "[id$='-listPets'] pre")))


def test_bodies_are_sent_and_shown_byte_for_byte(fresh: Live, browser: Chrome) -> None:
    page = Page(browser, fresh)
    page.authorize(fresh.key)
    block = page.open("createPet")
    for body in (
        r'{"categoryId": 9007199254740993, "name": "\u0000\u00e9 \"<b>"}',
        '{"categoryId": 1.0, "name": "Rex"}',
        '{"categoryId": 1, "name": "Rex", "name": "Tom"}',
        "{",
    ):
        headers = {"Content-Type": "application/json"}
        expected = fresh.client.post("/v1/pets", content=body, headers=headers)
        page.fill(f"{block} textarea", body)
        assert page.execute("createPet") == str(expected.status_code)
        assert bodies(browser) == [body]
        shown = page.texts(f"{block} .live-responses-table .highlight-code .microlight")
        assert shown == [expected.text.replace('"id":1', '"id":2')]
        page.click(f"{block} .btn-clear")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(service: Live, browser: Chrome, width: int) -> None:
    show(browser, width)
    page = Page(browser, service)
    page.authorize(service.key)
    for name in operations(service):
        page.open(name)
    page.click("[id$='-listPets'] .execute")
    page.see("[id$='-listPets'] .live-responses-table")
    spare = "const { scrollWidth, clientWidth } = document.documentElement;"
    spare += "return clientWidth - scrollWidth"
    assert browser.execute_script(spare) == 0


def test_the_contents_unfold_in_a_narrow_window(service: Live, browser: Chrome) -> None:
    show(browser, min(WIDTHS))
    page = Page(browser, service)
    assert not browser.find_element(By.CSS_SELECTOR, "#contents .operation").is_displayed()
    page.click("#contents summary")
    page.click("#contents [href$='-placeOrder']")
    page.see("[id$='-placeOrder'] .execute")
    page.wait.until(invisibility_of_element_located((By.CSS_SELECTOR, "#contents .operation")))


def test_the_key_is_hidden_and_escape_closes_its_dialog(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    page.click(".auth-wrapper .authorize")
    field = page.see(".modal-ux input")
    assert field.get_attribute("type") == "password"
    field.send_keys(Keys.ESCAPE)
    page.wait.until(invisibility_of_element_located((By.CSS_SELECTOR, ".modal-ux")))
    page.authorize(service.key)
    assert page.execute("listPets") == "200"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_colors_are_readable(service: Live, browser: Chrome, scheme: str) -> None:
    show(browser, max(WIDTHS), scheme)
    Page(browser, service)
    read = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])"
    for text, background in PAIRS:
        one, other = (browser.execute_script(read, f"--{name}") for name in (text, background))
        assert contrast(one, other) >= READABLE, (text, background)


def test_the_page_can_be_photographed(service: Live, browser: Chrome) -> None:
    show(browser, max(WIDTHS))
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    Page(browser, service)
    usual = "document.querySelector('.info code').textContent = 'http://127.0.0.1:8000/v1'"
    browser.execute_script(usual)
    screenshot = base64.b64decode(browser.get_screenshot_as_base64())
    assert len(screenshot) < 300_000
    if path := os.environ.get("PETSTORE_SCREENSHOT"):
        Path(path).write_bytes(screenshot)
