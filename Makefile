# The task runner. From a clean checkout with Python 3.11 or newer, `make run` and `make test`
# do all the setup; later runs take a second to start.

# Without compiled modules each of the hundreds of processes that tests start takes seconds more.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install -q --no-compile --disable-pip-version-check
OWN := -e . $(addprefix -e backends/,memory sqlite redis postgres)
KIT := -e conformance
SOURCES := pyproject.toml petstore/__init__.py $(wildcard backends/*/pyproject.toml)

# Tests often wait, so two of them run at the same time for each core.
PYTEST = $(BIN)/pytest -q -rs -n $$((2 * $$(getconf _NPROCESSORS_ONLN)))
ON := PETSTORE_TEST_WORKERS=2 PETSTORE_TEST_BACKEND

MINUTES ?= 60
TORTURE := $(BIN)/python -m tests.faults.torture --minutes

.PHONY: help install run test lint check check-all torture bench bench-quick lock build clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# The stamps say what is in .venv: what running needs, and what tests and checks need besides.
install: $(VENV)/dev ## set up .venv from the lock files

$(VENV)/runtime: requirements.lock docker/requirements-build.lock $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (once; fifteen seconds)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements.lock -r docker/requirements-build.lock
	@$(PIP) --no-deps --no-build-isolation $(OWN)
	@touch $@

$(VENV)/dev: $(VENV)/runtime requirements-dev.lock conformance/pyproject.toml
	@echo "Adding the tools of the tests to $(VENV) (once; half a minute)"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@$(PIP) --no-deps --no-build-isolation $(KIT)
	@touch $@

run: $(VENV)/runtime ## serve for trying things out, until Ctrl-C
	@exec $(BIN)/petstore serve --dev

test: install ## the tests for every change: four minutes on two cores
	$(PYTEST) --dist worksteal

lint: install ## format, lint, types, imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	MYPYPATH=conformance $(BIN)/mypy conformance/petstore_conformance

check: lint test ## what every commit passes

check-all: install ## what CI adds: the tests marked slow, other backends: half an hour on two cores
	tests/clients/linters/lint
	$(PYTEST) --dist loadgroup -m slow
	PETSTORE_FAULT_MINUTES=0.5 $(PYTEST) -m "" conformance/tests/test_faults_backends.py
	PETSTORE_STREAMS=30000 $(PYTEST) tests/process/test_streams.py
	PETSTORE_SEEDS=3 $(PYTEST) conformance/tests/test_saboteurs.py
	$(ON)=sqlite $(PYTEST) tests/http
	$(ON)=postgres $(PYTEST) tests/http
	$(ON)=redis PETSTORE_TEST_REDIS=cluster $(PYTEST) tests/http
	$(TORTURE) 3 || [ $$? = 75 ] # 75: the machine was too slow for a verdict, and it says so

torture: install ## kills, stalls, partitions, wrong clocks: an hour, or MINUTES=; SEED= repeats a run
	$(TORTURE) $(MINUTES) $(if $(SEED),--seed $(SEED))

# Each benchmark leaves its figures in build/bench; benchmarks.report combines them at the end.
bench: install ## the service, its peers and backends: 15 minutes; needs wrk
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.backends
	$(BIN)/python -m benchmarks.start
	@$(BIN)/python -m benchmarks.report

bench-quick: install ## the service and three peers: one minute; needs wrk
	$(BIN)/python -m benchmarks.peers --quick

# The backends require the service, which no index has, so its wheel is passed to the resolver.
# No lock file allows a source distribution, whose build would download tools without hashes.
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --upgrade \
  --generate-hashes --only-binary :all: --emit-build-options --no-emit-index-url --no-header
LOCK := $(COMPILE) --find-links build/lock/wheels --no-emit-package petstore-service \
  --no-emit-find-links pyproject.toml backends/*/pyproject.toml

lock: install ## pin and hash the requirements of the distributions and the tests
	rm -rf build/lock
	$(BIN)/python -m build -n --wheel -o build/lock/wheels
	$(LOCK) -o requirements.lock
	$(LOCK) --group dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) --group build -c requirements-dev.lock -o docker/requirements-build.lock
	$(COMPILE) --group kit -c requirements-dev.lock -o conformance/requirements.lock
	$(COMPILE) --group tracing -c requirements-dev.lock -o docker/requirements-tracing.lock
	$(COMPILE) --group clients -c requirements-dev.lock -o tests/clients/python/requirements.lock
	$(COMPILE) --group container -c requirements-dev.lock -o tests/container/requirements.lock

build: install ## wheels of all distributions, in dist/
	rm -rf dist
	for place in . conformance backends/*/; do $(BIN)/python -m build -n --wheel -o dist $$place || exit 1; done

clean: ## remove everything that make created
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
