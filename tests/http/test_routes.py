"""Litestar imports nothing in vain at a start."""

import importlib
import sys

import pytest
from litestar.config.app import AppConfig

from petstore.http.routes import Routes


def test_what_litestar_would_import_in_vain_is_left_out_of_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = "litestar.plugins.opentelemetry"
    monkeypatch.delitem(sys.modules, plugin, raising=False)
    Routes(AppConfig())
    assert plugin not in sys.modules
    assert importlib.import_module(plugin)  # it can still be imported
