#!/bin/sh
# The checks of a change, for any CI. WHEELS is a folder with the wheels of petstore-service and
# petstore-conformance.
set -eu
cd "$(dirname "$0")"
python3 -m venv .ci-venv
. .ci-venv/bin/activate
pip install "${WHEELS:?}"/petstore_service-*.whl "$WHEELS"/petstore_conformance-*.whl hatchling
rm -rf dist
pip wheel --no-build-isolation --no-deps --wheel-dir dist .
pip install dist/petstore_any_template-*.whl
PETSTORE_REQUIRE_SERVICES=1 pytest tests
petstore-conformance test any_template --json=conformance.json
