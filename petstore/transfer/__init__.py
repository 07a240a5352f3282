"""``petstore export``, ``import`` and ``verify``."""
