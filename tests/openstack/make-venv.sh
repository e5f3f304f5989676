#!/usr/bin/env bash
# Installs the OpenStack services that the tests start into .venv-openstack, as the lock beside this file says.
# Without them the tests concerned are skipped, unless CI=true: then this fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

LOCK=tests/openstack/requirements.lock
VENV=.venv-openstack

install() {
  .venv/bin/python -m venv --clear "$VENV" || return 1
  # uv takes seconds where pip takes minutes.
  if [[ -x .venv/bin/uv ]] &&
    .venv/bin/uv pip sync --quiet --python "$VENV/bin/python" --require-hashes "$LOCK"; then
    return 0
  fi
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$LOCK"
}

echo "Installing the OpenStack services of the tests into $VENV" >&2
if ! install; then
  rm -rf "$VENV"
  echo "The OpenStack services could not be installed; see above." >&2
  [[ ${CI:-} != true ]] || exit 1
  exit 0
fi
touch "$VENV/.installed"
