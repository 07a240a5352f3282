# The task runner. From a clean checkout with Python 3.11 or newer, `make run` and `make test`
# do all the setup; a second start takes a second.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OWN := -e . -e backends/memory -e backends/sqlite -e backends/redis
REDIS := PETSTORE_TEST_BACKEND=redis PETSTORE_TEST_REDIS
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

run: install ## serve for trying out, until Ctrl-C
	@exec $(BIN)/petstore serve --dev

test: install ## the tests, one process more than there are cores: they sometimes wait
	$(BIN)/pytest -q -rs --dist worksteal -n $$(($$(getconf _NPROCESSORS_ONLN) + 1))

lint: install ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test ## lint and test, for every commit: under three minutes

check-all: install ## the slower tests: browser, clients, image, npm linters, ten seeds, SQLite and Redis under HTTP, kills
	tests/clients/linters/lint
	$(BIN)/pytest -q tests/browser
	$(BIN)/pytest -q tests/clients
	$(BIN)/pytest -q tests/container
	$(BIN)/pytest -q tests/docs/test_production.py
	PETSTORE_SEEDS=10 $(BIN)/pytest -q -n auto tests/contract/test_saboteurs.py
	PETSTORE_TEST_BACKEND=sqlite PETSTORE_TEST_WORKERS=2 $(BIN)/pytest -q -n auto tests/http
	PETSTORE_RESTARTS=8 PETSTORE_KILLS=15 $(BIN)/pytest -q -s -k "rolling or kill" \
	  tests/process/test_restart.py tests/faults/test_durability.py tests/faults/test_never_sold_twice.py
	$(REDIS)=valkey PETSTORE_TEST_WORKERS=2 $(BIN)/pytest -q -n auto tests/http
	$(REDIS)=sentinel PETSTORE_TEST_WORKERS=1 $(BIN)/pytest -q -n auto tests/http
	$(REDIS)=cluster PETSTORE_TEST_WORKERS=2 $(BIN)/pytest -q -n auto tests/http
	PETSTORE_FAILOVERS=5 $(BIN)/pytest -q -n auto -rP tests/faults/test_redis_races.py
	PETSTORE_FAILOVERS=3 $(BIN)/pytest -q backends/redis/tests/test_failover.py
	for servers in valkey sentinel cluster; do $(REDIS)=$$servers PETSTORE_KILLS=4 $(BIN)/pytest \
	  -q -s -k "hundreds or killed" tests/faults/test_never_sold_twice.py || exit 1; done
	PETSTORE_TRANSFERRED=100000 $(BIN)/pytest -q tests/transfer/test_export_import.py
	$(TORTURE) 5

torture: install ## power cuts, kills, partitions, hostile clients: an hour, or MINUTES=; SEED= repeats
	$(TORTURE) $(MINUTES) $(if $(SEED),--seed $(SEED))

# The output of each is kept in build/bench; benchmarks.report combines it at the end.
bench: install ## compare with peers, show latency, stages, start, backends, pages: 20 minutes; needs wrk
	@mkdir -p build/bench
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.backends
	$(BIN)/python -m benchmarks.stages > build/bench/stages.txt
	$(BIN)/python -m benchmarks.start > build/bench/start.txt
	$(BIN)/python -m benchmarks.pages 1000 1000000 > build/bench/pages.txt
	@$(BIN)/python -m benchmarks.report

bench-quick: install ## the service beside three peers, and its stages: one minute; needs wrk
	$(BIN)/python -m benchmarks.stages --quick
	$(BIN)/python -m benchmarks.peers --quick

# The service is passed as a wheel, because the backends require it and no index has it.
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
