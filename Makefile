# `make` alone lists what can be made. Everything happens in .venv; nothing has to be activated.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
export PYTHON

BIN := .venv/bin
# Touched when .venv holds what the lock file says: a second run finds nothing to do.
VENV := .venv/.installed

# The same for the OpenStack services that some tests start, and for Nova's way to libvirt.
OPENSTACK := .venv-openstack/.installed
LIBVIRT := .venv-openstack/.libvirt

# The disk of the machines that test-vm boots; kernel and initrd lie beside it.
GUEST := build/vm/disk.qcow2

.PHONY: help demo test test-fast test-vm lint format lock openstack-lock vm-lock clean system-packages vm-packages

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(VENV) ## an exchange, a proof, the benchmark, a quick experiment with its report: minutes
	$(BIN)/python -m labctl.demo

test: $(VENV) system-packages $(OPENSTACK) lint ## everything: lint, types, import rules, all tests
	$(BIN)/pytest

test-fast: $(VENV) lint ## lint, types, import rules, unit tests: under a minute
	$(BIN)/pytest -q -n auto -m "not slow"

# Installs qemu, libvirt and more on this machine: tests/system-packages.sh says what.
test-vm: $(VENV) vm-packages $(LIBVIRT) $(GUEST) ## as root: a cloud that boots two machines, and a lab on them
	@# The packages that guests need, as long as there is a network to get it from.
	@$(BIN)/python -c "from labctl.testbeds.remote.wheels import Kind, packages; packages(Kind((3, 11), 'x86_64', 'glibc'))"
	tests/vm/private.sh $(BIN)/pytest tests/vm

lint: $(VENV) ## ruff, mypy, import rules; changes nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV) ## let ruff format and sort imports
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# Runs on Python 3.11 and later, on any processor; says nothing about where packages come from.
lock: $(VENV) ## remake requirements.lock with the newest versions
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --upgrade --no-emit-index-url --no-header --quiet --output-file requirements.lock

openstack-lock: $(VENV) ## remake the lock of the OpenStack services that tests start
	$(BIN)/uv pip compile tests/openstack/requirements.in --universal --python-version 3.11 --generate-hashes \
	  --upgrade --no-emit-index-url --no-header --no-annotate --quiet \
	  --output-file tests/openstack/requirements.lock

vm-lock: $(VENV) vm-packages ## the same for what test-vm needs besides
	$(BIN)/uv pip compile tests/vm/requirements.in --universal --python-version 3.11 --generate-hashes \
	  --upgrade --no-emit-index-url --no-header --no-annotate --quiet --output-file tests/vm/requirements.lock

clean: ## remove what make and the tools have made, .venv included
	rm -rf .venv .venv-openstack build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

system-packages:
	@tests/system-packages.sh

vm-packages:
	@CI=true tests/system-packages.sh vm

$(LIBVIRT): tests/vm/requirements.lock $(OPENSTACK) | vm-packages
	$(BIN)/uv pip install --quiet --python .venv-openstack/bin/python --require-hashes --requirement $<
	@touch $@

$(GUEST): tests/vm/make-image.sh | vm-packages
	tests/vm/make-image.sh $(@D)

$(OPENSTACK): tests/openstack/requirements.lock tests/openstack/make-venv.sh | $(VENV)
	@tests/openstack/make-venv.sh

$(VENV): requirements.lock pyproject.toml .ci/make-venv
	@.ci/make-venv
	@touch $@
