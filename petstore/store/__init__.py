"""The store that is served: opened, checked once a second, and refused once it is lost."""
