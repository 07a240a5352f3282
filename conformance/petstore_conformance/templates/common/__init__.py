"""What both templates have."""
