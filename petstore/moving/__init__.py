"""``petstore export`` and ``petstore import``: animals and orders from one store to another.

Whoever moves a store stops its writers first. Records of retries are not carried.
"""
