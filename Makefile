# Every command of the project.  Needs make, Python 3.11 or newer, and, for Spark, Java.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Tests and jobs start interpreters by the hundred: what one has compiled is kept for the
# next, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

# Succeeds when Spark would find a Java that it can use.
HAS_JAVA = "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" --version 2>/dev/null \
	| awk 'NR == 1 && $$2 + 0 >= 17 { found = 1 } END { exit !found }'

.DEFAULT_GOAL := help
.PHONY: help demo check test lint types layers fast all
.PHONY: docs soak fuzz chaos endure bench lock release clean

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
	@$(MAKE) --no-print-directory --jobs lint types layers fast

test: $(INSTALLED) ## Everything: check, and the slow, Spark and fault tests
	@$(MAKE) --no-print-directory --jobs lint types layers all

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED)
	@$(BIN)/mypy

layers: $(INSTALLED)
	@$(BIN)/lint-imports

# Tests that wait for a clock or a JVM leave a processor free: there is one process more.
PROCESSES = $$(( $$(nproc) + 1 ))

fast: $(INSTALLED)
	@$(BIN)/pytest -q -n $(PROCESSES) --dist worksteal

all: export HYPOTHESIS_PROFILE ?= test
all: $(INSTALLED)
	@$(BIN)/pytest -q -n $(PROCESSES) --dist loadgroup -m "not benchmark"

docs: $(INSTALLED) ## Make the site of docs/ and of all docstrings, in build/docs
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet \
		-c docs -d build/doctrees . build/docs
	@echo "Open build/docs/index.html."

soak: $(INSTALLED) ## Simulate crashes until stopped, or SEEDS=N of each (FLOWS="ring bank")
	$(BIN)/python -m tests.simulation.soak $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FLOWS),--flows $(FLOWS))

fuzz: $(INSTALLED) ## Play random programs until stopped, or MINUTES=30, or those of SEED=N
	$(BIN)/python -m tests.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

chaos: $(INSTALLED) ## Kill workers, executors and drivers at random (KILLS=50 SECONDS=240)
	$(BIN)/python -m tests.faults.chaos --kills $(or $(KILLS),50) --seconds $(or $(SECONDS),240)

endure: $(INSTALLED) ## Five endless jobs with kills; fails if anything rises (MINUTES=30)
	$(BIN)/python -m tests.endurance --minutes $(or $(MINUTES),30)

bench: $(INSTALLED) ## Measure against PySpark and hand-written Python
	$(BIN)/python benchmarks/run_all.py

# Versions and hashes alone: which index they come from is for whoever installs.
COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links

lock: $(INSTALLED) ## Take the newest versions that pyproject.toml allows
	@$(COMPILE) requirements/build.in --output-file requirements/build.lock
	@$(COMPILE) pyproject.toml --extra dev --constraints requirements/build.lock \
		--output-file requirements/dev.lock

release: $(INSTALLED) ## Version, changelog, wheel, commit and tag of VERSION=x.y.z; pushes nothing
	@$(BIN)/python tools/release.py $(VERSION)

clean: ## Remove everything that the other targets made
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf docs/reference/api benchmarks/data spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pyspark is built from source, and so is Millstream: with the locked tools, no others.
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(INSTALLED): pyproject.toml requirements/build.lock requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Millstream needs Python 3.11 or newer, but \`$(PYTHON)\` is `$(PYTHON) --version 2>&1`; install one and run \`make PYTHON=python3.11\`."; \
		exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Millstream and its tools into $(VENV) ..."
	@$(PIP_INSTALL) --require-hashes --requirement requirements/build.lock
	@$(PIP_INSTALL) --require-hashes --no-build-isolation --requirement requirements/dev.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@
