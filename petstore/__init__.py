"""The pet store service: an HTTP and JSON interface on storage that anyone can plug in."""

__version__ = "1.0.0"  # of all distributions of this project; their metadata are made from it
