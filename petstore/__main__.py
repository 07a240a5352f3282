"""Run the petstore command as ``python -m petstore``."""

from petstore.cli import main

main()
