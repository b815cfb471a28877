#!/usr/bin/env bash
# Installs ajv as the lock file has it and has it validate what random walks through the masks of random
# schemas wrote: run.sh PROGRAM [COUNT [SEED]].  Exit status 77, said out loud: something needed is not
# there.
set -euo pipefail
cd "$(dirname "$0")"
program=${1:?the path of constraint_walks}
shift
. ../support/npm_packages.sh
install_packages
exec node validate.mjs "$program" "$@"
