"""Prometheus metrics: counted in every worker process, added up and served on their own address.

Imported only where PETSTORE_METRICS_LISTEN is set. `serving` must come before `counting`: the
client library decides as it is imported whether several processes count together.
"""
