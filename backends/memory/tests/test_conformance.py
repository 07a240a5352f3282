"""The memory backend keeps the storage contract."""

from petstore_memory import MemorySettings, backend

from petstore.conformance import Conformance


class TestMemory(Conformance):
    backend = backend
    settings = MemorySettings()
