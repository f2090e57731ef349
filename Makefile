# Run
# make run                nsqd, nsqlookupd and nsqadmin on 127.0.0.1, data in ./nsq-data; PORT=5150 takes 5150, 5151, ...
# make demo               an end-to-end example: Spark, NSQ, two consumers and a crash; INPUT=file.jsonl for your records
#
# Test
# make test-fast          the core, protocols, options and backends, in less than a minute, without Spark and Java
# make test               all that checks this code, but for long forms; JOBS=4 runs four test files at a time, not two
# make test-browser       nsqadmin's pages in Chromium (Debian: apt-get install chromium); ONLY='live actions' for some
# make test-compiled      the tests on modules that mypyc compiled, with a C compiler; ONLY='tests/core' for some
# make test-spark         all tests of the connector on the lowest and the newest supported Spark, and Spark Connect;
#                         SPARK=lowest for one, ONLY=tests/spark/test_sql.py for some
# make test-system        Prometheus, systemd, zsh and fish, which must be installed; ONLY=systemd for some
# make test-twisted       the lowest and the newest supported Twisted; TWISTED=lowest for one, ONLY='tests/net' for some
# make fuzz               hostile inputs, new ones each time, for MINUTES=10; ONLY='http disk' for some targets
# make conformance        dialogues recorded from nsqd 1.3.0, against this broker; ONLY='pub/* rdy/*' for some
# make clients            the test suites of NSQ's clients against this broker; ONLY='gnsq nsqjs' for some
# make crash              brokers crash, and what they promised is checked; MINUTES=60, SEED=1 repeats an earlier run;
#                         without SEED, brokers that break a promise have to be caught after that
# make crash-takeover     two brokers with one data set in PostgreSQL, which must be installed: one takes over from the
#                         other, and what they promised is checked; MINUTES=60, ROUNDS=100, SEED=1 repeats an earlier run
# make model              histories of all pairs of policies, administration and faults; MINUTES=60, SEED=1 repeats one
# make crash-spark        an archive on a Spark cluster, under SIGKILL of driver, executors and broker, for MINUTES=10
#
# Measure
# make bench              rates and latencies, V3 beside V2, then bench-clients and bench-plots; PEER=/path/to/nsqd to
#                         compare, TOOLS=/dir/of/bench_writer
# make bench-clients      rates of our client library on each event loop, and of pynsq, gnsq and ansq
# make bench-connections  what closed connections leave in memory; COUNT=20000 of each kind instead of 200,000
# make bench-durability   what each durability class costs with each backend; PEER=/path/to/nsqd to compare
# make bench-lookupd      nsqlookupd with 100,000 registrations; PEER=/path/to/nsqlookupd to compare
# make bench-pauses       pauses of a broker with 10,000 channels at 100,000 messages a second
# make bench-plots        rates by message size and number of channels, in rates.png; PEER=/path/to/nsqd to compare
# make bench-shapes       how cost and memory grow with topics, connections and backlogs; what order and priorities cost
# make bench-spark        rows a second through the connector for Spark, beside programs without it; growth and scaling;
#                         ROWS=10000,1000000,50000000 for other sizes
#
# Build
# make docs               the documentation as a site, in docs/_build; a warning or a broken link is an error
# make screenshots        the pictures of nsqadmin in the documentation, made anew with Chromium
# make venv               only .venv with everything in it
# make wheels             what a release uploads, into dist/; PYTHONS='python3.11 python3.13' compiles for these
#
# Needs python3 (3.11 or newer) and make. PYTHON=/path/to/python3 chooses another Python.

VENV := .venv
BIN := $(VENV)/bin
MINUTES ?= 10
PORT ?= 4150
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11

BROKER := $(VENV)/.installed-broker
FAST := $(VENV)/.installed-fast
EVERYTHING := $(VENV)/.installed-everything
# Spark's classes as Java has them in memory: what starts Spark starts in a third of the time.
CLASSES := $(VENV)/spark-classes.jsa

# Tests start thousands of Python processes, which compile no module twice.
unexport PYTHONDONTWRITEBYTECODE

# Test files at the same time.
JOBS ?= 2

# The same examples each time, of hypothesis and of the fuzzing: a red run is about the change.
PYTEST := FUZZ_SEED=1 $(BIN)/python -m pytest --hypothesis-profile=same --no-loadscope-reorder

# Tests at the edge start processes and use sockets: a machine that stops one of them for half a minute fails them. So what
# failed runs once more, alone. What fails twice has failed; what passes only then is flaky, and kept in .flaky.
AGAIN = { echo "Once more, by itself, what failed:"; $(PYTEST) -p tests.flaky --last-failed --last-failed-no-failures=none; }

SWEEP = $(BIN)/python -m tests.bench.sweep --json rates.json --png rates.png $(if $(PEER),--peer '$(PEER)')

.PHONY: help run demo test test-fast test-browser screenshots test-compiled test-spark test-system test-twisted fuzz \
    conformance clients crash crash-spark crash-takeover model bench bench-plots bench-shapes bench-pauses \
    bench-clients bench-connections bench-durability bench-lookupd bench-spark docs wheels venv

# The comment at the top of this file.
help:
	@sed -n -e '/^#/!q' -e 's/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

run: $(BROKER)
	@NSQTW_MAKE_RUN=yes exec $(BIN)/nsqtw up --port $(PORT) --data-path nsq-data

demo: $(EVERYTHING)
	@$(BIN)/python -m contrib.demo $(if $(INPUT),--input '$(INPUT)') $(if $(KEEP),--keep)

test-fast: $(FAST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(PYTEST) --hypothesis-profile=fast --numprocesses=$(JOBS) \
	    -m 'not process and not histories' tests/core tests/protocols tests/options tests/backends

# What the crash tests do by chance is the same each time, unless CRASH_SEED says otherwise.
test: export CRASH_SEED ?= 1
test: $(CLASSES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(PYTEST) --numprocesses=$(JOBS) --dist=loadfile -m 'not long' || $(AGAIN)

test-browser: export PYTEST_ADDOPTS = --numprocesses=$(JOBS) --dist=loadfile
test-browser: $(EVERYTHING)
	@$(BIN)/python -m tests.browser $(ONLY)

screenshots: $(EVERYTHING)
	@SCREENSHOTS=docs/images $(BIN)/python -m tests.browser screenshots

docs: $(EVERYTHING)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet docs docs/_build
	@echo "docs/_build/index.html"

test-compiled: $(EVERYTHING)
	@$(BIN)/python -m tests.compiled --hypothesis-profile=same $(ONLY)

# As in `make test`: the same examples, JOBS test files at the same time.
test-spark: export FUZZ_SEED = 1
test-spark: export CRASH_SEED ?= 1
test-spark: export PYTEST_ADDOPTS = --hypothesis-profile=same --numprocesses=$(JOBS) --dist=loadfile
test-spark: $(EVERYTHING)
	@$(BIN)/python -m tests.spark_versions $(SPARK) $(ONLY)

test-system: $(EVERYTHING)
	@$(BIN)/python -m tests.system $(ONLY)

test-twisted: $(EVERYTHING)
	@$(BIN)/python -m tests.twisted_versions $(TWISTED) $(ONLY)

fuzz: $(EVERYTHING)
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ONLY)

conformance: $(EVERYTHING)
	@$(BIN)/python -m tests.conformance $(foreach scenario,$(ONLY),'$(scenario)')

clients: $(EVERYTHING)
	@$(BIN)/python -m tests.suites $(ONLY)

crash: $(EVERYTHING)
	@$(BIN)/python -m tests.crash $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(SEED),--seed '$(SEED)')
	$(if $(SEED),,@$(BIN)/python -m pytest --quiet --numprocesses=$(JOBS) -m long tests/crash)

crash-takeover: $(EVERYTHING)
	@$(BIN)/python -m tests.crash.takeover $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(ROUNDS),--rounds '$(ROUNDS)') \
	    $(if $(SEED),--seed '$(SEED)')

model: $(EVERYTHING)
	@$(BIN)/python -m tests.core.model --minutes $(MINUTES) $(if $(SEED),--seed '$(SEED)')

crash-spark: $(EVERYTHING)
	@CRASH_SPARK_MINUTES='$(MINUTES)' $(if $(SEED),CRASH_SEED='$(SEED)') \
	    $(BIN)/python -m pytest -s -n 0 tests/spark/jobs/test_archive_kills.py

bench: $(EVERYTHING)
	@$(BIN)/python -m tests.bench --json bench.json $(if $(PEER),--peer '$(PEER)') $(if $(TOOLS),--tools '$(TOOLS)')
	@$(BIN)/python -m tests.bench.beside
	@$(BIN)/python -m tests.bench.clients
	@$(SWEEP)

bench-plots: $(EVERYTHING)
	@$(SWEEP)

bench-shapes: $(EVERYTHING)
	@$(BIN)/python -m tests.bench.shapes
	@$(BIN)/python -m tests.bench.policies
	@$(BIN)/python -m tests.bench.order_rates

bench-connections: $(EVERYTHING)
	@$(BIN)/python -m tests.bench.connections $(if $(COUNT),--count '$(COUNT)')

bench-pauses: $(EVERYTHING)
	@$(BIN)/python -m tests.bench.pauses

bench-durability: $(EVERYTHING)
	@$(BIN)/python -m tests.bench.durability $(if $(PEER),--peer '$(PEER)')

bench-lookupd: $(EVERYTHING)
	@$(BIN)/python -m tests.bench.lookupd $(if $(PEER),--peer '$(PEER)')

bench-clients: $(EVERYTHING)
	@$(BIN)/python -m tests.bench.clients

bench-spark: $(EVERYTHING)
	@$(BIN)/python -m tests.bench.spark
	@$(BIN)/python -m tests.bench.spark.growth $(if $(ROWS),--rows '$(ROWS)') --json spark.json --png spark.png
	@$(BIN)/python -m tests.bench.spark.scaling

wheels: $(EVERYTHING)
	@$(BIN)/python -m contrib.wheels $(PYTHONS)

venv: $(EVERYTHING)

$(BROKER): pyproject.toml setup.py
	@found=; \
	for candidate in $(PYTHON); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "nsqtw needs Python 3.11 or newer, and none of these is: $(PYTHON). Try: make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$found cannot make virtual environments with pip. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version) and installing the broker" && \
	"$$found" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(FAST): $(BROKER)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test-fast]'
	@touch $@

# A machine without a Java for Spark gets one as a package, and one without a C compiler, too.
$(EVERYTHING): $(BROKER) contrib/spark/setup.py
	@echo "Installing Spark and the tools of the tests into $(VENV): some 900 MB, a minute or two"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]' -e contrib/spark
	@$(BIN)/python -m pyspark_nsq.java >/dev/null 2>&1 || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -e 'contrib/spark[java]'
	@$(BIN)/python -m tests.compiler || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[compiler]'
	@touch $@

$(CLASSES): $(EVERYTHING)
	@$(BIN)/python -m tests.spark.fast_java $@
