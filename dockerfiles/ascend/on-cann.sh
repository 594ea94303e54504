#!/bin/bash
# Runs a command with CANN's settings, as a shell has them after its set_env.sh.
root=${ASCEND_HOME:-/usr/local/Ascend}
for settings in "$root/ascend-toolkit/set_env.sh" "$root/nnal/atb/set_env.sh"; do
    # shellcheck disable=SC1090
    [ ! -f "$settings" ] || . "$settings"
done
exec "$@"
