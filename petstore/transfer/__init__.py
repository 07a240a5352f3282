"""``petstore export``, ``import`` and ``verify``: transfer everything from one store to another."""
