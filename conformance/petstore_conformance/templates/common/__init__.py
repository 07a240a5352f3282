"""The modules that both templates have."""
