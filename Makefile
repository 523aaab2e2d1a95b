PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# A run starts hundreds of Python processes: compiled once, each starts in half the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-crash test-unit test-contract test-integration test-faults setup-mysql test-mysql test-versions check format bench setup-bench soak clean

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m headwater.engine.spark.setup
	$(BIN)/python -m headwater.demo.mariadb
	touch $@

demo: setup
	$(BIN)/headwater demo

SIDE_BY_SIDE := $(BIN)/python -m pytest -q --durations=10 --dist loadscope --no-loadscope-reorder

# Three workers on two cores: most tests wait for a database now and then.
test: setup
	$(SIDE_BY_SIDE) -n 3 -m 'not soak and not versions and not crash' tests

# Whole servers, with Spark, that are killed again and again: each costs many starts, and keeps a core busy.
test-crash: setup
	$(SIDE_BY_SIDE) -n 2 -m 'crash and not soak' tests/faults

test-unit: setup
	$(BIN)/python -m pytest -q tests/unit tests/docs

test-contract: setup
	$(BIN)/python -m pytest -q tests/contract tests/values

test-integration: setup
	$(BIN)/python -m pytest -q tests/integration

test-faults: setup
	$(BIN)/python -m pytest -q tests/faults

# MySQL's own server runs from its own Debian, which only root can unpack; MariaDB needs nothing.
setup-mysql: setup
	$(BIN)/python tests/support/mysql.py --setup

test-mysql: setup-mysql
	$(BIN)/python -m pytest -q --every-turn tests -k "mysql or mariadb"

# Older and newer servers, downloaded once as jars and packages; needs debootstrap, but not root. If one cannot be
# downloaded, its tests fail; the others run.
test-versions: setup
	-PYTHONPATH=tests $(BIN)/python -m support.versions
	$(BIN)/python -m pytest -q -m versions tests/versions

check: setup
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

setup-bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.lock
	$(BIN)/python bench/fetch.py

bench: setup-bench
	$(BIN)/python -m bench

soak: setup
	$(BIN)/python -m pytest -q -m 'soak or turns' --every-turn --override-ini 'addopts=-ra --strict-markers --import-mode=importlib' -o faulthandler_timeout=0 tests
	HEADWATER_EXAMPLES=all $(BIN)/python -m pytest -q -m 'hypothesis and not soak and not versions' tests

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
