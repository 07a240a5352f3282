"""Fault injection: real services on a scratch location, faults, a search of the history."""
