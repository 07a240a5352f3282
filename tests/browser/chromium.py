"""Chromium without a window, restricted to this machine, and its logs."""

from typing import Any, Final

from selenium.webdriver import Chrome

FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # containers run the tests as root, for whom Chromium has no sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have a small /dev/shm
    "--window-size=1200,1600",
    "--no-first-run",
    # Chromium itself must not reach other hosts either.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


def log(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    """Return what the browser has logged since the last call."""
    entries: list[dict[str, Any]] = browser.get_log(kind)  # type: ignore[no-untyped-call]
    return entries
