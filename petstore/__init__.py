"""The pet store service: an HTTP and JSON interface on storage that anyone can plug in."""
