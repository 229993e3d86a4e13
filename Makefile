# Every command of the project.  Needs make, Python 3.11 or newer, and, for Spark, Java.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Succeeds when Spark would find a Java that it can use.
HAS_JAVA = "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" --version 2>/dev/null \
	| awk 'NR == 1 && $$2 + 0 >= 17 { found = 1 } END { exit !found }'

.DEFAULT_GOAL := help
.PHONY: help demo check test soak chaos bench clean

help: ## Show this list
	@echo "Millstream: stateful dataflows in plain Python, on the Spark you have."
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Start with \`make demo\`."

demo: $(INSTALLED) ## Count the words of a small corpus on Spark
	@if $(HAS_JAVA); then \
		$(BIN)/millstream run examples/word_count.py --on spark; \
	else \
		echo "Spark needs a Java 17 runtime (Debian and Ubuntu: apt install openjdk-17-jre-headless); running without Spark."; \
		$(BIN)/millstream run examples/word_count.py --on local; \
	fi

check: $(INSTALLED) ## Lint, types, layers and fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n auto --dist worksteal

test: export HYPOTHESIS_PROFILE ?= test
test: check ## Everything: check, then the slow, Spark and fault tests
	$(BIN)/pytest -q -n auto --dist loadgroup -m "slow or spark or fault"

soak: $(INSTALLED) ## Simulate crashes until stopped, or SEEDS=N of each (FLOWS="ring bank")
	$(BIN)/python -m tests.simulation.soak $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FLOWS),--flows $(FLOWS))

chaos: $(INSTALLED) ## Kill workers, executors and drivers at random (KILLS=50 SECONDS=240)
	$(BIN)/python -m tests.faults.chaos --kills $(or $(KILLS),50) --seconds $(or $(SECONDS),240)

bench: $(INSTALLED) ## Measure against PySpark and hand-written Python
	$(BIN)/python benchmarks/run_all.py

clean: ## Remove everything that the other targets made
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf benchmarks/data spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Millstream needs Python 3.11 or newer, but \`$(PYTHON)\` is `$(PYTHON) --version 2>&1`; install one and run \`make PYTHON=python3.11\`."; \
		exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Millstream and its tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
