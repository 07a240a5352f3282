"""The interactive reference in a real browser: complete, working, and loading nothing else.

Needs Chromium and its driver; `make check-all` runs it, `make test` does not. With
PETSTORE_SCREENSHOT=docs/reference.png it also writes the screenshot of the README.
"""

import ast
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from petstore.http.errors import ErrorCode
from tests.browser.chromium import log
from tests.browser.reference import WIDE, Page, operations, show
from tests.support.environments import captured, program
from tests.support.services import Live, environment

pytestmark = pytest.mark.slow

LANGUAGES: Final = ("curl", "Python", "TypeScript", "Go")

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


def run(command: list[str], service: Live, text: str | None = None) -> str:
    """Run a command with a service's key as `KEY`; return its standard output."""
    done = captured(command, input=text, env=environment() | {"KEY": service.key})
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


def run_sample(language: str, sample: str, service: Live, file: Path) -> object:
    """Run a sample of the page, if need be from a file; return the value that it prints."""
    if language == "curl":
        return json.loads(run(["bash", "-eu"], service, sample))
    if language == "Go":
        file.write_text(sample)
        return json.loads(run([program("go"), "run", str(file)], service))
    if language == "Python":
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


def test_the_reference_sends_requests_and_loads_nothing_from_other_hosts(
    service: Live, browser: Chrome
) -> None:
    page = Page(browser, service)
    assert page.send("listPets") == "401"
    assert "API key" in page.see("#listPets .status").text
    assert {entry["message"].rpartition(" ")[2] for entry in log(browser, "browser")} == {
        "(Unauthorized)"
    }
    page.key(service.key)
    assert page.send("createPet") == "201"
    assert "x-request-id: " in page.texts("#createPet .headers")[0]
    assert page.send("listPets") == "200"

    loaded = requests(browser)
    assert f"{service.url}/v1/pets" in loaded, "a field that is not filled in is not sent"
    assert [url for url in loaded if not url.startswith(f"{service.url}/")] == []
    assert [entry for entry in log(browser, "browser") if entry["level"] == "SEVERE"] == []


def test_the_fields_are_sent(fresh: Live, browser: Chrome) -> None:
    page = Page(browser, fresh)
    page.key(fresh.key)
    for _ in range(2):
        page.fill(f"{page.open('createPet')} [data-in=header]", "k")
        assert page.send("createPet") == "201"
    assert "idempotency-replayed: true" in page.texts("#createPet .headers")[0]
    for id_ in (2, 3):  # each with a key of its own
        page.fill("#createPet [data-in=header]", Keys.BACKSPACE)
        assert page.send("createPet") == "201"
        assert f'"id":{id_}' in page.texts("#createPet .result code")[0]
    page.open("getPet")
    page.fill("#getPet-petId", "a/b")
    assert page.send("getPet") == "404"
    page.fill("#listPets-limit", "1")
    page.click("#listPets-status option:nth-child(3)")
    assert page.send("listPets") == "200"
    sent = [url.removeprefix(fresh.url) for url in requests(browser) if "/v1/" in url]
    assert sent[4:] == ["/v1/pets/a%2Fb", "/v1/pets?limit=1&status=pending"]


def test_the_curl_command_of_a_request_hides_the_key_until_asked(
    fresh: Live, browser: Chrome
) -> None:
    page = Page(browser, fresh)
    page.key(fresh.key)
    assert page.see("#key").get_attribute("type") == "password"
    block = page.open("createPet")
    page.fill(f"{block} textarea", '{"name": "it\'s", "categoryId": 1}')
    assert page.send("createPet") == "201"
    page.unfold_all()
    hidden = page.see(f"{block} .result .code:has(+ .reveal) code").text
    page.click(f"{block} .reveal")
    shown = page.see(f"{block} .result .code:has(+ .reveal) code").text
    assert fresh.key not in hidden
    assert (
        hidden.replace('"Authorization: Bearer $KEY"', f"'Authorization: Bearer {fresh.key}'")
        == shown
    )
    for command in (hidden, shown):  # the same request, with the key that Send has made
        response = run(["bash", "-eu"], fresh, command)
        assert "idempotency-replayed: true" in response
        assert response.endswith('{"id":1,"name":"it\'s","categoryId":1}')
    page.click(f"{block} .reveal")
    assert page.see(f"{block} .result .code:has(+ .reveal) code").text == hidden


def test_the_guide_is_on_the_page(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    assert browser.title == "Pet store service: reference"
    assert page.texts("h1") == ["Pet store service 1.0.0"]
    topics = ["Keys", "Pages", "Errors", "Retries", "Rate limits", "Deprecation"]
    assert page.texts(".guide h2") == topics
    codes = [[code, str(int(code.status))] for code in ErrorCode]
    rows = page.texts(".guide tbody td:not(:last-child)")
    assert [rows[i : i + 2] for i in range(0, len(rows), 2)] == codes
    assert all(page.texts(".guide tbody td:last-child")), "each code has an explanation"
    assert len(page.texts(".guide pre")) >= 5
    assert f'curl "{service.url}/v1/pets"' in page.texts(".guide pre")[0]
    assert "$SERVER" not in page.see("body").text


def test_the_contents_lead_to_every_topic_and_operation(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    links = browser.execute_script(
        "return [...document.querySelectorAll('nav a')].map(e => e.hash)"
    )
    assert [len(browser.find_elements(By.CSS_SELECTOR, link)) for link in links] == [1] * len(links)
    entries = [
        found["summary"] + " (deprecated)" * found.get("deprecated", False)
        for found in operations(service).values()
    ]
    assert page.texts("nav .entry > :last-child") == entries
    page.click("nav [href='#placeOrder']")
    page.see("#placeOrder .send")
    page.click("#placeOrder > summary")
    page.click("nav [href='#placeOrder']")
    page.see("#placeOrder .send")
    Page(browser, service, "#/Store/getOrder").see("#getOrder .send")


def test_every_operation_shows_examples_of_its_request_and_of_every_response(
    service: Live, browser: Chrome
) -> None:
    page = Page(browser, service)
    for name, operation in operations(service).items():
        block = page.open(name)
        assert page.texts(f"{block} .description p")
        (success, content), *errors = operation["responses"].items()
        (example,) = content["content"].values()
        assert f"{success} {content['description']}" in page.texts(f"{block} h4")
        shown = page.texts(f"{block} .example code")
        assert [json.loads(text) for text in shown] == [example["example"]]
        assert page.texts(f"{block} .fields dt"), "the fields of the body of a success"
        for status, _ in errors:
            for line in page.texts(f"{block} [data-status='{status}'] pre")[0].splitlines():
                assert str(json.loads(line)["status"]) == status
        if "requestBody" in operation:
            assert json.loads("".join(page.texts(f"{block} textarea")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_samples_run_as_they_are_on_the_page(
    fresh: Live, browser: Chrome, tmp_path: Path, language: str
) -> None:
    page = Page(browser, fresh)
    for operation, path in SAMPLES.items():
        css = f"{page.open(operation)} .{language} code"
        (sample,) = page.texts(css)
        printed = run_sample(language, sample, fresh, tmp_path / "main.go")
        assert printed == fresh.client.get(path).json(), sample
    assert fresh.client.get(path).json()["status"] == "completed"
    assert {*SAMPLES} == {*operations(fresh)}


def test_a_chosen_language_holds_for_all_samples_and_each_can_be_copied(
    service: Live, browser: Chrome
) -> None:
    page = Page(browser, service)
    page.click(f"{page.open('createPet')} label:has([value=Python])")
    for operation in ("createPet", "listPets", "placeOrder"):
        block = page.open(operation)
        (sample,) = page.texts(f"{block} .Python code")
        page.click(f"{block} .Python .copy")
        assert page.see(f"{block} .Python output").text == "Copied"
        assert page.clipboard() == sample


def test_all_code_of_the_guide_can_be_copied(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    assert len(page.texts(".guide .copy")) == len(page.texts("#content .guide pre")) >= 5
    page.click(".guide .copy")
    assert page.clipboard() == page.texts(".guide pre")[0].rstrip()


def test_the_contents_can_be_searched(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    page.fill("#search", "Rate Limits")
    page.see("nav [href='#rate-limits']")
    page.fill("#search", "relative to the URL")  # of the guide
    shown = "return [...document.querySelectorAll('nav a:not([hidden])')].map(e => e.hash)"
    assert browser.execute_script(shown) == ["#pages"]
    page.fill("#search", "/store/orders/{orderid}")  # of two operations
    assert browser.execute_script(shown) == ["#getOrder", "#updateOrder"]
    page.fill("#search", " ")
    assert len(browser.execute_script(shown)) == len(page.texts("nav a"))


def test_the_contents_show_where_the_reader_is(service: Live, browser: Chrome) -> None:
    page = Page(browser, service)
    page.see("nav [href='#keys'][aria-current=true]")
    for part in ("placeOrder", "errors"):
        page.click(f"nav [href='#{part}']")
        page.see(f"nav [href='#{part}'][aria-current=true]")
        assert len(page.texts("nav [aria-current]")) == 1


def test_the_sample_stays_in_view(service: Live, browser: Chrome) -> None:
    show(browser, WIDE)
    page = Page(browser, service)
    block = page.open("createPet")
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    page.click(f"{block} form > details:last-child > summary")  # the headers
    browser.execute_script(f"document.querySelector('{block} .field').scrollIntoView()")
    page.wait.until(lambda _: browser.execute_script(top, f"{block} .description") < 0)
    assert browser.execute_script(top, f"{block} legend") >= 0


def test_bodies_are_sent_and_shown_byte_for_byte(fresh: Live, browser: Chrome) -> None:
    page = Page(browser, fresh)
    page.key(fresh.key)
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
        assert page.send("createPet") == str(expected.status_code)
        assert bodies(browser) == [body]
        shown = page.texts(f"{block} .result > .code code")
        assert shown == [expected.text.replace('"id":1', '"id":2')]


def test_the_page_can_be_photographed(service: Live, browser: Chrome) -> None:
    show(browser, WIDE)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    Page(browser, service)
    usual = "for (const e of document.querySelectorAll('.server')) e.textContent = arguments[0]"
    browser.execute_script(usual, "http://127.0.0.1:8000/v1")
    screenshot = base64.b64decode(browser.get_screenshot_as_base64())
    assert len(screenshot) < 300_000
    if path := os.environ.get("PETSTORE_SCREENSHOT"):
        Path(path).write_bytes(screenshot)
