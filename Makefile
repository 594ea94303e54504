# The front door: every documented command is a target here; `make help` lists them.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

# What a user sets: make image VERSION=0.25 FLAVOUR=capture BASE=local TAG=name:tag
# (FLAVOUR=ascend BASE=local: on a simulated CANN)
VERSION ?=
FLAVOUR ?= capture
BASE ?=
TAG ?=
OUT ?=
# Two releases, or a release and a tree: make drift FROM=0.25 TO=0.26, make port likewise.
FROM ?=
TO ?=
TREE ?=
# Further arguments for the tool behind a target, e.g. ARGS="--format json".
ARGS ?=
# Tests: make test TESTS=tests/unit; PATCHKIT_REQUIRE_ALL=1 turns each skip into a failure.
TESTS ?= tests

.DEFAULT_GOAL := help

need-version = @[ -n "$(VERSION)" ] || { \
	echo "make: which release? make $@ VERSION=0.25 (releases.toml has them)" >&2; exit 2; }
release = --version "$(VERSION)" --flavour "$(FLAVOUR)"

## help: what can be typed here
help:
	@sed -n 's/^## \([^:]*\): /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 44

$(VENV)/.stamp: requirements/lock.txt requirements/make-venv.sh
	@sh requirements/make-venv.sh "$(PYTHON)" "$(VENV)"

## venv: the tools' Python environment, from the lock file with hashes
venv: $(VENV)/.stamp

## verify: every patch of every release against its pinned source (VERSION=0.25: one)
verify: venv
	@$(RUN) tools/verify_hunks.py $(if $(VERSION),$(release),--all) $(ARGS)

## tree VERSION=0.25: a git work tree in build/: the pinned source, one commit a patch
tree: venv
	$(need-version)
	@$(RUN) tools/tree.py $(release) $(if $(OUT),--out "$(OUT)") $(ARGS)

## refresh VERSION=0.25: the work tree's commits, back into patch files and series
refresh: venv
	$(need-version)
	@$(RUN) tools/refresh.py $(release) $(if $(OUT),--tree "$(OUT)") $(ARGS)

## drift FROM=0.25 TO=0.26: how each hunk fits another release (TREE=DIR: any tree)
drift: venv
	@[ -n "$(FROM)" ] && [ -n "$(TO)$(TREE)" ] || { \
		echo "make: from which release to which? make drift FROM=0.25 TO=0.26" >&2; exit 2; }
	@$(RUN) tools/drift.py --from "$(FROM)" --flavour "$(FLAVOUR)" \
		$(if $(TREE),--tree "$(TREE)",--to "$(TO)") $(ARGS)

## drift-map: a picture of how the newest patches (FROM=0.25: those) fit every release
drift-map: venv
	@$(RUN) tools/drift_map.py $(if $(FROM),--from "$(FROM)") --flavour "$(FLAVOUR)" \
		$(if $(TO),--to $(TO)) $(if $(OUT),--out "$(OUT)") $(ARGS)

## port FROM=0.25 TO=0.26: carry a series to another release; again, to go on
port: venv
	@[ -n "$(FROM)" ] && [ -n "$(TO)" ] || { \
		echo "make: from which release to which? make port FROM=0.25 TO=0.26" >&2; exit 2; }
	@$(RUN) tools/port.py --from "$(FROM)" --to "$(TO)" --flavour "$(FLAVOUR)" \
		$(if $(OUT),--tree "$(OUT)") $(ARGS)

## new-release: port the releases of the package index that the kit does not have
new-release: venv
	@$(RUN) tools/new_release.py $(ARGS)

## engine: make sure a container engine answers (installs docker.io on Debian as root)
engine: venv
	@$(RUN) tools/engine.py $(ARGS)

## image VERSION=0.25 BASE=local: a patched image, on its pinned base, a reference, or local
image: venv
	$(need-version)
	@$(RUN) tools/image.py $(release) $(if $(BASE),--base "$(BASE)") $(if $(TAG),--tag "$(TAG)") $(ARGS)

## smoke VERSION=0.25: test the built image with a real engine inside
smoke: venv
	$(need-version)
	@$(RUN) tools/smoke.py $(release) $(if $(TAG),--tag "$(TAG)") $(ARGS)

# Without the marker and as a wheel for any Python: the image's may be 3.10, which has
# no tomllib, whatever this environment's is.
## vendor: the libraries that tools/apply.py needs inside an image, in build/vendor
vendor: venv
	@rm -rf build/vendor
	@awk '/^[^ ]/ { keep = /^(tomli|unidiff)==/ } keep { sub(/ ; python[^\\]*/, " "); print }' \
		requirements/lock.txt | \
		$(RUN) -m pip install -qq --no-deps --require-hashes --only-binary :all: \
		--platform any --implementation py --abi none --python-version 3.10 \
		--target build/vendor -r /dev/stdin

## pins: resolve the image tags of releases.toml to digests where a registry answers
pins: venv
	@$(RUN) tools/pins.py $(ARGS)

## test: lint, verify, and every test; what cannot run here is skipped with its reason
test: lint verify
	@$(RUN) -m pytest $(TESTS) $(ARGS)

## coverage: every line the series adds is run by a test (FLAVOUR=ascend: on the NPU)
coverage: venv
	@$(RUN) tools/diff_coverage.py $(if $(VERSION),--version "$(VERSION)",--all) \
		--flavour "$(FLAVOUR)" $(ARGS)

## types VERSION=0.25: upstream's own mypy hook on the files that the series changes
types: venv
	$(need-version)
	@$(RUN) tools/upstream_types.py $(release) $(ARGS)

## own-tests: vLLM's own tests end the same with the series as without (VERSION=0.25: one)
own-tests: venv
	@$(RUN) tools/own_tests.py $(if $(VERSION),--version "$(VERSION)") \
		--flavour "$(FLAVOUR)" $(ARGS)

## cann: tests on the real torch_npu over a simulated CANN runtime (TORCH_NPU=2.13.0)
cann: venv
	@$(RUN) tests/cann/run.py $(if $(TORCH_NPU),--torch-npu "$(TORCH_NPU)") $(ARGS)

## npu VERSION=0.25: vLLM's engine with the Ascend series on the simulated runtime
npu: venv
	$(need-version)
	@$(RUN) tests/npu/run.py --version "$(VERSION)" $(ARGS)

## test-all: test, and the tests of every release that has the Ascend series
test-all: test
	@for version in 0.22 0.23 0.24 0.25; do \
		$(MAKE) --no-print-directory npu VERSION=$$version || exit; done

## lint: ruff, mypy and clang-format on the kit's own code
lint: venv
	@$(VENV)/bin/ruff check --quiet tools tests dockerfiles
	@$(VENV)/bin/ruff format --check --quiet tools tests dockerfiles
	@$(VENV)/bin/clang-format --dry-run --Werror tests/cann/simulated/*.c tests/cann/simulated/*.cpp
	@$(VENV)/bin/mypy

## tables: write the tables of README.md that come from the series and from evidence/
tables: venv
	@$(RUN) tools/readme_tables.py $(ARGS)

## lock: write requirements/*.txt anew from pyproject.toml (needs uv)
compile = uv pip compile --universal --python-version 3.10 --generate-hashes --no-header \
	--no-emit-index-url
lock:
	$(compile) pyproject.toml --group dev -o requirements/lock.txt
	$(compile) --group verify -c requirements/lock.txt -o requirements/verify.txt

## clean: remove build/ and the tools' environment; the per-user cache stays
clean:
	rm -rf build $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

# `make engine image …` starts the engine before anything that needs it, under -j too.
ifneq ($(filter engine,$(MAKECMDGOALS)),)
image smoke test: | engine
endif


.PHONY: help venv verify tree refresh drift drift-map port new-release engine image smoke vendor pins test test-all cann npu coverage types own-tests lint tables lock clean
