# The task runner. From a clean checkout with Python 3.11 or newer, `make run` and `make test`
# do all the setup; later runs take a second to start.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OWN := -e . $(addprefix -e backends/,memory sqlite redis postgres)
REDIS := PETSTORE_TEST_BACKEND=redis PETSTORE_TEST_REDIS
NO_KIT := --ignore-glob="*conformance.py" # where `make test` has run the kit
SOURCES := pyproject.toml petstore/__init__.py $(wildcard backends/*/pyproject.toml)

MINUTES ?= 60
TORTURE := $(BIN)/python -m tests.faults.torture --minutes

.PHONY: help install run test lint check check-all torture bench bench-quick lock build clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: $(VENV)/installed ## set up .venv from the lock files

$(VENV)/installed: requirements-dev.lock $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (once; half a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation $(OWN)
	@touch $@

run: install ## serve for trying things out, until Ctrl-C
	@exec $(BIN)/petstore serve --dev

# One process more than there are cores, because tests sometimes wait.
test: install ## all but the slowest tests: 16 minutes on two cores
	$(BIN)/pytest -q -rs --dist worksteal -n $$(($$(getconf _NPROCESSORS_ONLN) + 1))

lint: install ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint ## lint, and the tests that start no other server: 3 minutes on two cores, for every commit
	$(BIN)/pytest -q -n auto --dist worksteal tests/architecture tests/config tests/docs tests/http \
	  tests/transfer backends/memory backends/sqlite \
	  --ignore tests/docs/test_production.py --ignore tests/transfer/test_export_import.py

check-all: install ## the slower tests: browser, clients, image, every backend, seeds, kills: an hour
	tests/clients/linters/lint
	$(BIN)/pytest -q tests/browser
	$(BIN)/pytest -q tests/clients
	$(BIN)/pytest -q tests/container
	$(BIN)/pytest -q -n auto $(NO_KIT) backends/redis backends/postgres tests/process
	PETSTORE_SEEDS=10 $(BIN)/pytest -q -n auto tests/contract/test_saboteurs.py
	PETSTORE_SEEDS=2 $(BIN)/pytest -q -n auto tests/contract/test_honest.py
	PETSTORE_FAULT_MINUTES=0.5 $(BIN)/pytest -q -s tests/contract/test_faults_backends.py
	PETSTORE_TEST_BACKEND=sqlite PETSTORE_TEST_WORKERS=2 $(BIN)/pytest -q -n auto tests/http
	PETSTORE_RESTARTS=8 PETSTORE_KILLS=15 $(BIN)/pytest -q -s -k "rolling or kill" \
	  tests/process/test_restart.py tests/faults/test_durability.py tests/faults/test_never_sold_twice.py
	$(REDIS)=valkey PETSTORE_TEST_WORKERS=2 $(BIN)/pytest -q -n auto $(NO_KIT) tests/http
	$(REDIS)=sentinel PETSTORE_TEST_WORKERS=1 $(BIN)/pytest -q -n auto $(NO_KIT) tests/http
	$(REDIS)=cluster PETSTORE_TEST_WORKERS=2 $(BIN)/pytest -q -n auto $(NO_KIT) tests/http
	PETSTORE_TEST_BACKEND=postgres PETSTORE_TEST_WORKERS=2 $(BIN)/pytest -q -n auto tests/http
	PETSTORE_TEST_BACKEND=postgres PETSTORE_KILLS=4 $(BIN)/pytest -q -s -k "hundreds or killed" \
	  tests/faults/test_never_sold_twice.py
	PETSTORE_KILLS=20 $(BIN)/pytest -q -k "under_kills or survive_kills" \
	  tests/faults/test_postgres_service.py backends/postgres/tests/test_failures.py
	PETSTORE_FAILOVERS=5 $(BIN)/pytest -q -n auto -rP tests/faults/test_redis_races.py
	PETSTORE_FAILOVERS=3 $(BIN)/pytest -q backends/redis/tests/test_failover.py
	for servers in valkey sentinel cluster; do $(REDIS)=$$servers PETSTORE_KILLS=4 $(BIN)/pytest \
	  -q -s -k "hundreds or killed" tests/faults/test_never_sold_twice.py || exit 1; done
	PETSTORE_TRANSFERRED=100000 $(BIN)/pytest -q tests/transfer/test_export_import.py
	$(TORTURE) 3

torture: install ## power cuts, kills, partitions, hostile clients: an hour, or MINUTES=; SEED= repeats a run
	$(TORTURE) $(MINUTES) $(if $(SEED),--seed $(SEED))

# Each benchmark leaves its output in build/bench; benchmarks.report combines it at the end.
bench: install ## peers, latency, stages, start, backends, pages: 20 minutes; needs wrk
	@mkdir -p build/bench
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.backends
	$(BIN)/python -m benchmarks.stages > build/bench/stages.txt
	$(BIN)/python -m benchmarks.start > build/bench/start.txt
	$(BIN)/python -m benchmarks.pages 1000 1000000 > build/bench/pages.txt
	@$(BIN)/python -m benchmarks.report

bench-quick: install ## the service and three peers, and its stages: one minute; needs wrk
	$(BIN)/python -m benchmarks.stages --quick
	$(BIN)/python -m benchmarks.peers --quick

# The backends require the service, which no index has, so its wheel is passed to the resolver.
COMPILE := build/lock/bin/uv pip compile -q --universal --python-version 3.11 --upgrade \
  --generate-hashes --no-emit-index-url --no-header
LOCK := $(COMPILE) --find-links build/lock/wheels --no-emit-package petstore-service \
  --no-emit-find-links pyproject.toml backends/*/pyproject.toml

lock: ## pin and hash the requirements of the distributions and the tests
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install -q --disable-pip-version-check uv
	build/lock/bin/uv build -q --wheel -o build/lock/wheels
	$(LOCK) -o requirements.lock
	$(LOCK) --group dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) --group build -c requirements-dev.lock -o docker/requirements-build.lock
	$(COMPILE) --group clients -c requirements-dev.lock -o tests/clients/python/requirements.lock
	$(COMPILE) --group container -c requirements-dev.lock -o tests/container/requirements.lock

build: install ## wheels of all distributions, in dist/
	rm -rf dist
	for place in . backends/*/; do $(BIN)/python -m build -n --wheel -o dist $$place || exit 1; done

clean: ## remove everything that make created
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
