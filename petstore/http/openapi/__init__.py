"""The OpenAPI document: what is generated, and the words that no code can tell."""
