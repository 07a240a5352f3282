"""The level that kills: real services on a scratch place, faults, and a search of the history."""
