# Every line can be run by hand. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Before anything is installed, one line for a Python that is too old; in words that the oldest understands.
CHECK := import sys; sys.version_info >= (3, 11) or sys.exit("Sluice needs Python 3.11 or newer, and this is %s. Name another one: make PYTHON=python3.12" % sys.version.split()[0])
# What is installed: enough to run, or everything. The second includes the first. Another Python makes the environment anew.
ENVIRONMENT = @"$(PYTHON)" -c '$(CHECK)' && "$(PYTHON)" scripts/venv.py "$(VENV)"
# Four processes run the tests on two cores: half of them wait for other programs most of the time (tests/workers.py says who runs what).
PROCESSES ?= 4
WORKERS = -n $(PROCESSES) -p tests.workers
RUNS ?= 5
PAUSE ?= 0
# Versions of Kubernetes that KUBERNETES= chooses, besides the default.
OLDER := $(patsubst tests/e2e/controlplane/go-%.mod,%,$(wildcard tests/e2e/controlplane/go-*.mod))
# Each of these checks uses one core, so two run at a time.
CHECKS = $(MAKE) --no-print-directory --jobs 2 types lint rewritten
# Files of tests/structure that run programs which `make binaries` builds (tests/structure/test_environment.py looks for others).
RUN_BINARIES := test_chart test_kind test_manifests test_monitoring
# Whatever the surroundings say: tests start Python a hundred times, and would compile the same modules each time.
export PYTHONDONTWRITEBYTECODE =
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-build --python-version 3.11 --custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: help venv run test test-unit rewritten test-python test-busy test-releases lint fix types cluster promises differential hostile faults fuzz e2e-kind e2e-node e2e-dra soak bench next docs binaries lock wheels chart release clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

venv: ## make or update the virtual environment from the lock
	$(ENVIRONMENT) -r requirements-dev.lock --editable

# The checkout itself is run, so nothing has to be built.
run: ## a server for this machine: embedded store, own certificates, kubeconfig (ARGS=--help lists its flags)
	$(ENVIRONMENT) -r requirements-run.lock
	$(BIN)/python -m apiserver dev $(ARGS)

test: venv ## everything that must hold: lint, types, import contracts, tests
	$(CHECKS)
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

test-unit: venv ## what needs only Python: tests/unit, and tests/structure without the files that run Kubernetes programs
	$(BIN)/python -m pytest $(WORKERS) tests/unit tests/structure $(RUN_BINARIES:%=--ignore=tests/structure/%.py) $(ARGS)

test-python: venv ## what depends most on Python: unit tests (wire, serving, …) and CEL (PYTHON=python3.13 VENV=.venv-3.13: beside .venv)
	$(BIN)/python -m pytest $(WORKERS) tests/unit tests/promises/cel $(ARGS)

test-busy: PROCESSES = 2
test-busy: venv ## the tests RUNS times (5), beside two programs that never rest (PAUSE=2: they stand still for 2 s now and then)
	$(CHECKS)
	$(BIN)/python -m tests.busy --runs $(RUNS) --pause $(PAUSE) -- $(WORKERS) $(ARGS)

test-releases: binaries ## the tests that depend on the Kubernetes release, on each release but the newest (marker `releases`)
	$(foreach version,$(OLDER),KUBERNETES=$(version) $(BIN)/python -m pytest $(WORKERS) -m releases $(ARGS) &&) true

lint: venv ## ruff, the import contracts, the wording of texts (scripts/words.py), the pages that are read from declarations, and what the pages must name
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/words.py
	$(BIN)/python scripts/versions.py --check
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python -m pytest -q tests/structure/test_pages.py

fix: venv ## the twin of lint: repair what can be repaired
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Otherwise each of the processes that run tests would compile all of them, because they begin at the same time.
rewritten: binaries ## compile the tests of a new clone once, as pytest needs them
	@ls tests/unit/__pycache__/test_app.*-pytest-* >/dev/null 2>&1 || $(BIN)/python -m pytest --collect-only -qq >/dev/null

types: venv ## mypy, strict
	$(BIN)/mypy

cluster: binaries ## a control plane with Sluice behind it, until Ctrl-C; prints its KUBECONFIG (ARGS=--take-over: Sluice serves resource.k8s.io, with a scheduler)
	$(BIN)/python -m tests.e2e.controlplane $(ARGS)

promises: binaries ## every promise of the API, of admission and of custom resources against `sluice dev`, Sluice behind kube-apiserver, and kube-apiserver itself
	$(BIN)/python -m pytest -p tests.promises.oracle tests/promises/api tests/promises/admission tests/promises/custom --target all $(ARGS)

differential: binaries ## the recorded answers of a real kube-apiserver against Sluice, behind one and asked directly (ARGS=--oracle: that server itself)
	$(BIN)/python -m tests.e2e.corpus $(ARGS)

hostile: venv ## 10,000 hostile requests, drawn from a seed, against a server of its own: some fourteen minutes (ARGS=--help)
	$(BIN)/python -m tests.hostile $(ARGS)

faults: venv ## faults in a store of each form and in its servers, drawn from a seed, and a judge of all that clients got (ARGS=--help; python -m tests.faults.bugs plants bugs that it must find)
	$(BIN)/python -m tests.faults $(ARGS)

soak: venv ## half an hour of writes, 500 watchers, lists and restarts, and a judge of all that must not grow (ARGS="--minutes 30 --writes 200"; ARGS=--help)
	$(BIN)/python -m tests.soak $(ARGS)

e2e-kind: venv ## the end-to-end suite against Sluice in a kind cluster of its own (needs docker, kind)
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/e2e/kind/run.sh

e2e-node: binaries ## Sluice as pods of a real node, without a registry: the end-to-end suite and what a deployment must stand (needs root; ARGS=up: until Ctrl-C, ARGS=clean: after kill -9)
	$(BIN)/python -m tests.e2e.node $(ARGS)

e2e-dra: binaries ## Kubernetes' own specs for dynamic resource allocation, with the built-in group and with Sluice in its place (ARGS=--node: with those that need a kubelet, on a real node; ARGS="--focus CRUD --only sluice")
	$(BIN)/python -m tests.e2e.dra $(ARGS)

fuzz: binaries ## random input, judged by us and by the real thing (ARGS=kinds: objects; ARGS=cel: expressions compiled; ARGS=policies: evaluated; ARGS=admission: policies in force on both; ARGS=gates: features switched off; ARGS=sequences: who manages which field, write after write; ARGS="kinds --seed=7")
	$(BIN)/python -m tests.fuzz $(ARGS)

bench: venv ## measure (bench/README.md), and say which bounds are missed; ARGS=--upstream: beside kube-apiserver, ARGS=--aggregated: through it, ARGS=--quick: fewer samples
	$(BIN)/python -m bench $(ARGS)

next: venv ## the work list of another Kubernetes release: what it answers otherwise than the recorded one (VERSION=1.38.0-alpha.2 ARGS="--output list.md")
	$(BIN)/python -m tests.e2e.next $(VERSION) $(ARGS)

docs: venv ## build the handbook into dist/site, and fail on a dead link or a page without a place in docs/index.md
	$(BIN)/python -m sphinx --fresh-env --conf-dir docs --jobs auto --fail-on-warning --keep-going --quiet --doctree-dir dist/doctrees . dist/site
	@echo "the handbook: file://$(CURDIR)/dist/site/index.html"

binaries: venv ## build the Kubernetes programs of the tests, once (tests/e2e/controlplane/README.md)
	$(BIN)/python tests/e2e/controlplane/binaries.py

lock: venv ## renew requirements*.lock from pyproject.toml
	$(COMPILE) pyproject.toml --output-file requirements.lock
	$(COMPILE) --constraint requirements.lock pyproject.toml --extra dev --output-file requirements-run.lock
	$(COMPILE) --constraint requirements-run.lock pyproject.toml --extra dev --extra tracing --group dev --output-file requirements-dev.lock
	$(COMPILE) --constraint requirements-dev.lock --group build --output-file requirements-build.lock

# Of the oldest C library that the image's base has had; nothing is downloaded but metadata.
wheels: venv ## check that every locked library has a wheel on amd64 and arm64: for the image, and for every supported Python
	for machine in x86_64 aarch64; do \
	  $(BIN)/uv pip install --quiet --dry-run --no-deps --require-hashes --only-binary :all: --python-version 3.13 \
	    --python-platform $$machine-manylinux_2_28 --target $(VENV)/wheels -r requirements.lock || exit 1; \
	  for version in 3.11 3.12 3.13 3.14; do \
	    $(BIN)/uv pip install --quiet --dry-run --no-deps --require-hashes --only-binary :all: --python-platform $$machine-manylinux_2_28 \
	      --target $(VENV)/wheels -r requirements-dev.lock --python-version $$version || exit 1; \
	  done; \
	done

chart: binaries ## write charts/sluice anew from manifests/ and monitoring/, and the dashboards
	$(BIN)/python -m monitoring.dashboards
	$(BIN)/python -m charts.generate

release: lint ## the files of a release in dist/VERSION, the same bytes each time (VERSION=0.2.0; docs/releasing.md)
	$(BIN)/python -m release $(VERSION)

clean: ## remove what the other targets made here (the cache of Kubernetes programs lies outside)
	rm -rf "$(VENV)" .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -prune -exec rm -rf {} +
