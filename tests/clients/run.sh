#!/usr/bin/env bash
# Installs the clients' packages as the lock file has them, starts one cluster on the demo model and
# runs every *.test.mjs against it.  Exit status 77, said out loud: something needed is not there.
set -euo pipefail
cd "$(dirname "$0")"
bin=${1:?the folder of the programs}
shift
. ../support/npm_packages.sh
install_packages
exec node run.mjs "$bin" "$@"
