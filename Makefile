# The front door: every documented command is a target here; `make help` lists them.
SHELL := /bin/sh
PYTHON ?= python3
VERSION ?=
FLAVOUR ?= capture
BASE ?=
VENV := .venv
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help

## help: what can be typed here
help:
	@sed -n 's/^## \([^:]*\): /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 44

$(VENV)/.stamp: requirements/lock.txt
	@sh requirements/make-venv.sh "$(PYTHON)" "$(VENV)"

## venv: the tools' Python environment, from the lock file with hashes
venv: $(VENV)/.stamp

## lint: ruff and mypy on the kit's own code
lint: venv
	@$(VENV)/bin/ruff check tools tests dockerfiles
	@$(VENV)/bin/ruff format --check tools tests dockerfiles
	@$(VENV)/bin/mypy

.PHONY: help venv lint
