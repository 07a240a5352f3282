"""The controllers: thin, they translate between HTTP and the repository."""
