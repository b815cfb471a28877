#!/usr/bin/env bash
# Installs the packages as the lock file has them and runs every *.test.mjs.  Exit status 77, said out loud:
# something needed is not there.
set -euo pipefail
cd "$(dirname "$0")"
export TANDEM_BIN=${1:?the folder of the programs}
. ../support/npm_packages.sh
install_packages
exec node --test ./*.test.mjs
