#!/bin/sh
# The tests of tests/npu on this machine's NPU, and a result for evidence/:
#   tests/npu/on_hardware.sh 0.25 [PYTEST ARGUMENT …]
# It needs an Ascend NPU with its driver, and CANN, whose set_env.sh was sourced.
set -eu

say() {
    echo "on_hardware.sh: $1" >&2
    exit 2
}

case "${1-}" in
"") say "which release? tests/npu/on_hardware.sh 0.25" ;;
-h | --help)
    sed -n '2,/^set/{s/^# \{0,1\}//p;}' "$0"
    exit 0
    ;;
esac
[ -e /dev/davinci_manager ] ||
    say "no Ascend NPU here: its driver would make /dev/davinci_manager"
[ -d "${ASCEND_HOME_PATH-}" ] ||
    say "no CANN: source its set_env.sh first, which sets ASCEND_HOME_PATH"

version=$1
shift
cd "$(dirname "$0")/../.."
make venv
exec .venv/bin/python tests/npu/on_hardware.py --version "$version" "$@"
