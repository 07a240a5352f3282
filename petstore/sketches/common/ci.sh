#!/bin/sh
# The checks of a change, for any CI. WHEELS is a folder with the wheel of petstore-service.
set -eu
cd "$(dirname "$0")"
python3 -m venv .ci-venv
. .ci-venv/bin/activate
pip install "$(echo "${WHEELS:?}"/petstore_service-*.whl)[conformance]" hatchling
rm -rf dist
pip wheel --no-build-isolation --no-deps --wheel-dir dist .
pip install dist/petstore_any_sketch-*.whl
PETSTORE_REQUIRE_SERVICES=1 pytest tests
petstore conformance any_sketch --json=conformance.json
