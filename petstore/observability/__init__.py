"""What an operator sees of a running service: log, metrics and traces."""
