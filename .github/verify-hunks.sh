#!/bin/sh
# What action.yml runs: fetch the two libraries that verifying patches needs, pinned by
# their hashes, with the runner's own python3; then verify. What it is given is in the
# environment: see tools/github_action.py.
set -eu
stop() {
    echo "::error title=verify-hunks::$1"
    exit 2
}
kit=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
export GITHUB_WORKSPACE="${GITHUB_WORKSPACE:-$PWD}"
# `python3 -m` looks for modules in the current folder, which holds the user's files.
cd -- "$kit"

python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    stop "this runner has no python3 of 3.10 or later; actions/setup-python gives one"

lock=requirements/verify.txt
folder=${RUNNER_TEMP:-${TMPDIR:-/tmp}}/verify-hunks-libraries
# The second use in a job finds what the first one fetched.
if ! cmp -s "$lock" "$folder/complete"; then
    rm -rf -- "$folder"
    # Not into the runner's own Python: --target leaves that, and a user setting, alone.
    PIP_USER=0 python3 -m pip install -qq --disable-pip-version-check --require-hashes \
        --only-binary=:all: --target "$folder" -r "$lock" ||
        stop "pip could not install requirements/verify.txt; is a package index reachable?"
    cp "$lock" "$folder/complete"
fi
PYTHONPATH=$folder exec python3 tools/github_action.py
