"""``petstore export`` and ``petstore import``: transfer pets and orders between stores."""
