"""Two backends to begin with, and the command that copies one under another name."""
