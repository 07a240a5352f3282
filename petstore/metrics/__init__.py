"""Prometheus metrics: counted in every worker process, added up and served on their own address.

Imported only where PETSTORE_METRICS_LISTEN is set. `serving.served` must be entered before
`counting` is imported: the client library decides as it is imported where it counts.
"""
