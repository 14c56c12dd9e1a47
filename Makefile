# Everything a developer or a user of this checkout starts. A virtual environment in .venv is made when it is needed.

VENV := .venv
BIN := $(VENV)/bin
# The system's Python, if it is new enough: distributions build theirs with profile-guided optimisation, version managers
# mostly do not, and then it serves a third fewer requests (docs/performance.md).
IS_USABLE := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell /usr/bin/python3 -c '$(IS_USABLE)' 2>/dev/null && echo /usr/bin/python3 || echo python3)
KILLS ?= 200
PAUSES ?= 50
CUTS ?= 50
SEEDS ?= 1000
ROUNDS ?= 100

.DEFAULT_GOAL := help
.PHONY: help run test lint bench interop crash drill sim fencing mutants news

help: ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*##/\t/'

run: $(VENV)/installed ## one member: clients on 2181, admin on 127.0.0.1:8080, data in ./znoded-data
	$(BIN)/twistd --nodaemon --pidfile= znoded $(ARGS)

test: $(VENV)/installed-test ## the tests that need nothing but Python
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report --include='znoded/jute/*,znoded/tree/*,znoded/watches/*' --fail-under=100

lint: $(VENV)/installed-lint ## types and style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --strict

interop: $(VENV)/installed-interop ## foreign clients, those that are installed; see tests/interop/README.md
	if command -v npm >/dev/null; then npm ci --silent --prefix tests/interop/clients/node; fi
	$(BIN)/python -m pytest -m interop tests/interop tests/fencing

crash: $(VENV)/installed-test ## cut, kill and damage, the long way; KILLS=200 says how often the server is killed
	$(BIN)/python -m pytest -m 'crash or slow' --ignore=tests/simulation
	$(BIN)/python -m tests.crash.kill_under_load --rounds $(KILLS)

drill: $(VENV)/installed-test ## a cell of three under load: KILLS=200 PAUSES=50 CUTS=50 of its leaders
	$(BIN)/python -m tests.cell_drill --kills $(KILLS) --pauses $(PAUSES) --cuts $(CUTS)

sim: $(VENV)/installed-test ## simulated cells under trouble, cores and whole members; SEEDS=1000 says how many, new ones each time
	$(BIN)/python -m tests.zab_raft.core.simulation --seeds $$(date +%s) $(SEEDS)
	$(BIN)/python -m tests.simulation --seeds $$(date +%s) $(SEEDS)
	$(BIN)/python -m pytest -m slow tests/simulation

fencing: $(VENV)/installed-test ## tokens and plain locks under pauses, kills and cuts: SEEDS=1000 simulated, ROUNDS=100 real
	$(BIN)/python -m tests.simulation.locks $$(date +%s) $(SEEDS)
	$(BIN)/python -m tests.fencing --seeds $$(date +%s) $(SEEDS) --rounds $(ROUNDS)

mutants: $(VENV)/installed-test ## take out each guard of the Raft core: the tests have to notice
	$(BIN)/python -m tests.zab_raft.core.mutants

bench: $(VENV)/installed-test ## speed beside ZooKeeper, see docs/performance.md
	$(BIN)/python -m bench

news: $(VENV)/installed-lint ## what the next release will say
	$(BIN)/towncrier build --draft --version next

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python setup.cfg pyproject.toml
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/installed-lint: $(VENV)/installed-test
	$(BIN)/pip install --quiet --editable '.[test,lint]'
	touch $@

$(VENV)/installed-interop: $(VENV)/installed-test tests/interop/requirements.txt
	$(BIN)/pip install --quiet --requirement tests/interop/requirements.txt
	touch $@
