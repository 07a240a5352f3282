"""What tests share: running services, requests and responses, the command, controls."""
