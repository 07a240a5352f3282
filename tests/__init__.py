"""The tests of the service. A backend has its own beside it."""
