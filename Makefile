# Two commands do everything: `make demo` and `make test`. Both make their own .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO_READY := .venv/.demo-ready
BENCH_READY := .venv/.bench-ready
# Byte code is made, and kept, of the modules that are imported, when they first are: of all 16,000 it takes minutes.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

# In two processes, file by file in the order that tests/conftest.py gives: those that take longest first.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test slow durations bench docs lint scripts kernels clean

demo: $(DEMO_READY)
	$(BIN)/pebbler demo --out out/demo

# Kernels need the package alone: they are compiled on one core while the other installs what only tests need and checks types.
test: $(DEMO_READY)
	@$(MAKE) --no-print-directory -j 2 lint kernels
	$(PYTEST)

# What passed is written down, so that a run that was stopped goes on; out/slow.jsonl says how each test ended and what it took.
slow: $(READY)
	$(BIN)/pytest -n 2 --dist load --maxschedchunk 2 -m 'slow or hypothesis' --all-examples --timeout 3000 --ledger=out/slow.jsonl

# What tests take, recorded and shown; the longest files begin first from then on.
durations: $(READY)
	$(PYTEST) --record-durations
	$(BIN)/python tests/durations.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory scripts

# Types of the pages' scripts. Nothing else needs node: where it is missing that is said, and pages work all the same.
scripts:
	@command -v tsc >/dev/null || test -x node_modules/.bin/tsc \
	  || npm install --silent --no-package-lock --no-audit --no-fund \
	  || echo "no tsc, and npm cannot get it: the types of the pages' scripts are not checked"
	@if test -x node_modules/.bin/tsc; then node_modules/.bin/tsc -p src/pebbler/show/report/assets; \
	  elif command -v tsc >/dev/null; then tsc -p src/pebbler/show/report/assets; fi

# By its own path: pip, which may be at work on the other core, takes the installed one away for a moment.
kernels: $(DEMO_READY)
	PYTHONPATH=src $(BIN)/python -m pebbler.solver.warm_up

bench: $(BENCH_READY)
	$(BIN)/python -m benchmarks

# The variable hides the theme's advertisement, which would hide our own warnings.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The stamps hold until pyproject.toml changes, so a second run installs nothing and works offline. The demo needs the package alone.
$(DEMO_READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	touch $(DEMO_READY)

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[test,docs]'
	touch $(DEMO_READY) $(READY)

$(BENCH_READY): $(READY)
	$(INSTALL) --editable '.[bench]'
	touch $(BENCH_READY)

clean:
	rm -rf .venv out build dist
