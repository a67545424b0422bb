# The daily commands. `make demo` and `make test` are all that a fresh machine needs: Python 3.11, Go 1.26, git, make.

.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-$(shell cat requirements/dev.txt pyproject.toml | sha256sum | cut -c1-16)

# Set by callers: DEMO_ARGS="--once", TEST_ARGS="-k schedule".
DEMO_ARGS ?=
TEST_ARGS ?=

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

$(STAMP):
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not installed; Outrider is built with Python 3.11" >&2; exit 1; }
	@echo "setting up $(VENV) (about 95 packages; two minutes the first time) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Make the virtual environment

.PHONY: demo
demo: setup ## Run the main job on the local cluster and watch it live
	@$(BIN)/python -m demo $(DEMO_ARGS)

.PHONY: test
test: check ## Check everything, then run the tests, those on the local cluster included
	@# By file: the tests of a module share a cluster. In the order of the folders: those on clusters take longest.
	@rm -rf build/rights
	$(BIN)/pytest -m "not long and not engine" -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term \
	  --record-rights build/rights $(TEST_ARGS)
	@# Over the whole suite: a part of it cannot use every right.
	@$(if $(TEST_ARGS),,$(BIN)/python -m tests.testbed.rights build/rights)

.PHONY: test-full
test-full: test ## The tests, and the long suites that do not fit their time
	$(BIN)/pytest -m long $(TEST_ARGS)

.PHONY: test-engine
test-engine: setup ## Test the runtime plugin in a real vLLM on CPU, beside the simulated engine
	$(BIN)/python -m tests.engine.environment
	$(BIN)/pytest tests/engine $(TEST_ARGS)

.PHONY: fuzz
fuzz: setup ## Try 20,000 generated resources on our code and on a real API server: half an hour
	$(BIN)/pytest tests/fuzz tests/testbed/test_fuzz.py --fuzz-examples 20000 $(TEST_ARGS)

# A quarter of an hour each. atheris is in no lock file: it has wheels for few machines.
.PHONY: fuzz-parsers
fuzz-parsers: setup ## Search what makes readers of outside input stumble, guided by coverage; needs atheris in .venv; FUZZ_SECONDS=60 for a short look
	$(BIN)/python -m tests.fuzz.coverage_guided $(or $(FUZZ_SECONDS),900)

# A seed plays the same: a failure names its own, for --chaos-seed in TEST_ARGS.
.PHONY: chaos
chaos: setup ## Play users, loads and faults at random: 100,000 control passes, 10,000 steps on the local cluster; CHAOS_SECONDS=3600 for a soak
	$(BIN)/pytest -s tests/unit/reconcile/test_chaos.py tests/testbed/test_chaos.py --chaos-passes 100000 --chaos-steps 10000 \
	  $(if $(CHAOS_SECONDS),--chaos-seconds $(CHAOS_SECONDS)) $(TEST_ARGS)

.PHONY: check
check: fmt-check lint types imports generate-check ## All that can be checked without running anything

.PHONY: fmt
fmt: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --select I .

.PHONY: fmt-check
fmt-check: setup
	$(BIN)/ruff format --check .

.PHONY: lint
lint: setup ## Look for mistakes and house rules
	$(BIN)/ruff check .

.PHONY: types
types: setup ## Check types, strictly
	$(BIN)/mypy

.PHONY: imports
imports: setup ## Check the layers
	@out=$$($(BIN)/lint-imports 2>&1) && echo "$$out" | grep "^Contracts:" || { echo "$$out"; exit 1; }

.PHONY: generate
generate: setup ## Write generated files anew
	$(BIN)/python -m outrider.api.crd
	$(BIN)/python -m outrider.reference
	$(BIN)/python -m outrider.observability
	$(BIN)/python -m charts
	$(BIN)/python -m tests.failures

.PHONY: generate-check
generate-check: generate
	@git diff --exit-code --stat -- crds docs/reference docs/failures.md charts deploy || { echo "make: generated files differ from what is committed; commit them" >&2; exit 1; }

.PHONY: requirements
requirements: setup ## Lock the dependencies anew, with hashes and without the address of any index
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --extra operator --group dev --output-file requirements/dev.txt pyproject.toml
	@# The operator's image: a part of the same, so that what runs is what was tested.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --extra operator --constraint requirements/dev.txt --output-file requirements/operator.txt pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --output-file requirements/docs.txt requirements/docs.in

.PHONY: docs
docs: ## Build the documentation into site/; a link that leads nowhere ends it
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not installed; Outrider is built with Python 3.11" >&2; exit 1; }
	@cmp -s requirements/docs.txt .venv-docs/installed.txt || { echo "setting up .venv-docs ..." && $(PYTHON) -m venv --clear .venv-docs \
	  && .venv-docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt \
	  && cp requirements/docs.txt .venv-docs/installed.txt; }
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.PHONY: bench
bench: setup ## Time what is worth timing
	$(BIN)/python -m benchmarks

.PHONY: bench-policy
bench-policy: setup ## Judge decisions beside every baseline; QUICK=1 for a short look
	$(BIN)/python -m benchmarks.policy $(if $(QUICK),--quick)

.PHONY: bench-gpu
bench-gpu: setup ## Write the page of the GPU benchmark from its rows, without a GPU
	$(BIN)/python -m benchmarks.gpu compare

.PHONY: bench-capacity
bench-capacity: setup ## Judge replicas and their cost beside fixed targets; QUICK=1 for a short look
	$(BIN)/python -m benchmarks.capacity $(if $(QUICK),--quick)

.PHONY: bench-scale
bench-scale: setup ## Measure the operator with 100, 1,000 and 5,000 services on the local cluster; QUICK=1 for a short look
	$(BIN)/python -m benchmarks.scale $(if $(QUICK),--quick)

.PHONY: bench-footprint
bench-footprint: setup ## Measure what the operator's image adds to its base, and how long commands take to start
	$(BIN)/python -m benchmarks.footprint

.PHONY: bench-canary
bench-canary: setup ## Measure how often the judgement of candidates errs; QUICK=1 for a short look
	$(BIN)/python -m benchmarks.canary $(if $(QUICK),--quick)

.PHONY: clean
clean: ## Remove what builds and runs left here; the cluster tools stay in the user's cache folder
	rm -rf build dist site $(VENV) .venv-docs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
