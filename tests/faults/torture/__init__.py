"""The torture: faults for an hour, and one report of what was done how often and what broke."""
