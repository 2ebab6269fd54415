# Every target works from a bare checkout: it makes .venv and installs what it needs first.
# pip's own settings (PIP_* and pip.conf) are left as they are.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DEV := .venv/.installed-dev
FRAMEWORKS := .venv/.installed-frameworks
GRAFANA := .cache/grafana
STATE := .state

.DEFAULT_GOAL := help
.PHONY: help monitor-up monitor-down monitor-status monitor-logs monitor-drill demo demo-down alerts test test-integration test-long coverage test-grafana mutants lint audit format bench docs dashboards pictures golden lock wheel image-digests clean install-service uninstall-service

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

monitor-up: $(INSTALLED) ## Start the whole stack, wait until all of it works, say where it is and where alerts go
	@$(BIN)/trainvitals up --state-dir $(STATE)

monitor-down: $(INSTALLED) ## Stop everything that monitor-up started; data and logs stay in .state
	@$(BIN)/trainvitals down --state-dir $(STATE)

monitor-status: $(INSTALLED) ## Show programs, targets, rules, what fires and where alerts go
	@$(BIN)/trainvitals status --state-dir $(STATE) || [ $$? -eq 1 ] # 1: something is wrong, which it has said

monitor-drill: $(INSTALLED) ## Have a simulated fault become a message (ALERT=Name; REAL=1: real durations)
	@$(BIN)/trainvitals drill $(if $(ALERT),$(ALERT),--list) $(if $(REAL),--real) --state-dir $(STATE)

monitor-logs: $(INSTALLED) ## Follow the logs of every program
	@$(BIN)/trainvitals logs --state-dir $(STATE)

demo: $(INSTALLED) ## Play recorded machines through the real stack, with 6 hours of their past (docs/demo.md)
	@$(BIN)/python -m fleet up --state-dir $(STATE)/demo

demo-down: $(INSTALLED) ## End the demo and remove all that it has written
	@$(BIN)/python -m fleet down --state-dir $(STATE)/demo

alerts: $(INSTALLED) ## Set up who hears of alerts, from .env; TEST=1 sends a test message to every channel
	@$(BIN)/trainvitals notify --state-dir $(STATE) $(if $(TEST),--test)

install-service: ## As root: install the exporter as a service of systemd (RECORDER=1: the recorder too) and start it
	@PYTHON='$(PYTHON)' RECORDER='$(RECORDER)' CONFIRM='$(CONFIRM)' deploy/systemd/install install

uninstall-service: ## As root: stop and remove the services; data, logs and settings stay
	@CONFIRM='$(CONFIRM)' deploy/systemd/install uninstall

test: $(DEV) ## Run the tests that need no server: minutes (PYTEST_FLAGS='tests/unit/stack -k port': some)
	@$(with_prometheus) $(call measured,unit) $(BIN)/pytest -n $(workers) $(measure) $(PYTEST_FLAGS)

test-integration: $(FRAMEWORKS) ## Run the tests with real components: Prometheus, Docker, PyTorch, a browser
	@$(have_grafana)
	@$(with_prometheus) $(call measured,integration) $(BIN)/pytest -n $(waiters) --dist loadscope $(measure) \
		$(or $(PYTEST_FLAGS),tests/integration)

test-long: export TRAINVITALS_TEST_LONG := 1
test-long: $(FRAMEWORKS) ## Run all tests with what lasts minutes at full length: hours
	@$(with_prometheus) $(BIN)/pytest --timeout=3600 $(or $(PYTEST_FLAGS),tests/unit tests/integration)

coverage: $(DEV) ## Require 90 % of the code to be covered by both test floors, run with COVERAGE=1
	@$(BIN)/coverage combine --quiet --keep
	@$(BIN)/coverage report --skip-covered

test-grafana: $(GRAFANA)/.installed ## Judge the boards by Grafana's own packages, 10.4 and 13.2, from npm (needs Node 20; make test does without)
	@$(need_node)
	@node tests/integration/dashboards/node/check.mjs

mutants: $(DEV) ## Break the alert rules in every place and tell what their tests miss (ALERTS="A B")
	@$(with_prometheus) $(BIN)/python -m tests.support.rule_mutants $(ALERTS)

lint: $(FRAMEWORKS) ## Check style, types, layers and spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

audit: ## Look up known vulnerabilities of what the package installs; skipped where the lists cannot be read
	@PYTHON='$(PYTHON)' .ci/audit

format: $(DEV) ## Format the code and fix what can be fixed without a thought
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

bench: $(DEV) ## Measure the exporter beside its peers for 20 minutes (QUICK=--quick: 5); write bench/RESULTS.md
	@$(BIN)/python -m pip install --quiet --group bench
	@for script in bench/*_bench.py; do \
		$(BIN)/python -m "bench.$$(basename "$$script" .py)" $(QUICK) || exit; \
	done
	@$(BIN)/python -m bench.report

docs: $(DEV) ## Write docs/metrics.md, docs/alerts.md, docs/diagnosis.md, docs/doctor.md and the table of log formats
	$(BIN)/python docs/build/metrics.py
	$(BIN)/python docs/build/alerts.py
	$(BIN)/python docs/build/diagnosis.py
	$(BIN)/python docs/build/doctor.py
	$(BIN)/python docs/build/formats.py

dashboards: $(INSTALLED) ## Write grafana/dashboards from grafana/build
	@$(BIN)/python -m grafana.build

pictures: $(DEV) ## Take screenshots of the boards into docs/pictures (GRAFANA_URL=http://...; docs/dashboards.md)
	@$(BIN)/python docs/build/board_pictures.py

golden: $(DEV) ## Write tests/golden again; read the diff
	$(BIN)/pytest -q -k golden --update-golden

lock: $(DEV) ## Write the exact versions and hashes that services and wheels are made of
	@PYTHON=$(BIN)/python .ci/lock

wheel: $(DEV) ## Build the wheel of the last commit into dist, always the same bytes, with its bill of materials
	@PYTHON=$(BIN)/python .ci/wheel dist

image-digests: ## Ask the registries for the digests of the images that Compose names, and write them (needs Docker)
	@.ci/image-digests

clean: ## Remove .venv, caches and build results; .state stays
	@if [ -S $(STATE)/supervisor.sock ]; then echo "the stack runs from .venv: make monitor-down first" >&2; exit 1; fi
	rm -rf .venv .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf .coverage .coverage.* build dist
	find exporter tests bench fleet docs grafana -name __pycache__ -type d -prune -exec rm -rf {} +

# Where promtool and prometheus are not installed, the tests get Debian's; where there are none to be
# had, the tests that need them say so.
with_prometheus = directory=$$($(BIN)/python -c '$(print_directory)' 2>/dev/null) && PATH="$$PATH:$$directory";
print_directory = from trainvitals.stack.debian import find_program; \
	print(find_program("promtool").parent)

# A fresh venv has a pip that may not know dependency groups yet.
$(INSTALLED): pyproject.toml
	@echo "setting up .venv" >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "$(PYTHON) is too old: make PYTHON=python3.11 (3.10 at least)" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { \
		echo "$(PYTHON) cannot make .venv: on Debian and Ubuntu install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable '.[habana]'
	@touch $@

$(DEV): $(INSTALLED)
	@echo "installing what tests need" >&2
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@

# torch goes first and alone: whatever asks for torch afterwards takes the build that is there.
$(FRAMEWORKS): $(DEV)
	@echo "installing PyTorch and the frameworks" >&2
	@$(BIN)/python -m pip install --quiet --group torch
	@$(BIN)/python -m pip install --quiet --group frameworks
	@touch $@

# With COVERAGE=1 each floor leaves its data for `make coverage`.
# Timers are waited for some of the time and real servers most of it, so that more processes than
# cores are served.
workers = $(shell expr $$(nproc) + 1)
waiters = $(shell expr $$(nproc) + 2)
measured = $(if $(COVERAGE),COVERAGE_FILE=$(CURDIR)/.coverage.$(1))
measure = $(if $(COVERAGE),--cov --cov-report= --cov-fail-under=0)

$(GRAFANA)/.installed: tests/integration/dashboards/node/package.json tests/integration/dashboards/node/package-lock.json
	@$(need_node)
	@echo "installing Grafana's packages into $(GRAFANA)" >&2
	@mkdir -p $(GRAFANA)
	@cp $^ tests/integration/dashboards/node/.npmrc $(GRAFANA)
	@npm ci --silent --prefix $(GRAFANA) || { \
		echo "npm cannot install them: npm ci --prefix $(GRAFANA) says why" >&2; exit 1; }
	@touch $@

# The boards are judged by Grafana's packages, where Node is and npm reaches a registry.
have_grafana = if command -v npm >/dev/null; then $(MAKE) --silent $(GRAFANA)/.installed || \
	echo "Grafana's packages are not installed: their tests are skipped" >&2; fi

need_node = for program in node npm; do command -v $$program >/dev/null || { \
	echo "$$program is not on PATH: install Node 20 or newer, with npm" >&2; exit 2; }; done
