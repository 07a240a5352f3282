"""``petstore export``, ``import`` and ``verify``, and the file of ``serve --dev``."""
