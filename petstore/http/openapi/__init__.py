"""The OpenAPI document: what is generated from the code, and the texts that cannot be."""
