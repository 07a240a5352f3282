"""The clauses of the contract, a module a subject: each a test, read like the contract."""
