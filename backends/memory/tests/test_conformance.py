"""The memory backend keeps the storage contract."""

from petstore_conformance import Conformance
from petstore_memory import MemorySettings, backend


class TestMemory(Conformance):
    backend = backend
    settings = MemorySettings()
