"""Random changes of the code, by hand before a release: which do the tests not notice."""
