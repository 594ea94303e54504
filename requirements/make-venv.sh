#!/bin/sh
# Make the tools' environment from the lock file; called by the Makefile alone.
# usage: make-venv.sh PYTHON FOLDER
set -eu
python=$1
folder=$2
lock=$(dirname "$0")/lock.txt

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || {
    echo "make: $python is missing or older than 3.10; name one: make venv PYTHON=python3.11" >&2
    exit 2
}
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian and Ubuntu keep ensurepip in a package of its own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "make: $python has no venv module; installing python3-venv with apt-get"
        apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
    else
        echo "make: $python has no venv module; install it: sudo apt-get install python3-venv" >&2
        exit 2
    fi
fi
echo "make: creating $folder from requirements/lock.txt"
rm -rf "$folder"
"$python" -m venv "$folder"
"$folder/bin/python" -m pip install -qq --disable-pip-version-check \
    --require-hashes --only-binary=:all: -r "$lock" || {
    rm -rf "$folder"
    echo "make: the lock file could not be installed; is a package index reachable (PIP_INDEX_URL)?" >&2
    exit 2
}
touch "$folder/.stamp"
