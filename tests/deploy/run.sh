#!/usr/bin/env bash
# Installs the packages as the lock file has them and runs every *.test.mjs.  Exit status 77, said out loud:
# something needed is not there.
set -euo pipefail
cd "$(dirname "$0")"
export TANDEM_BIN=${1:?the folder of the programs}

skip() { echo "SKIPPED: $*"; exit 77; }
command -v node >/dev/null || skip "node is not installed (scripts/setup --tests installs it)"
[ "$(node -p 'process.versions.node.split(".")[0] >= 18')" = true ] || skip "node is older than 18: $(node --version)"
if ! cmp -s package-lock.json node_modules/.installed; then
  command -v npm >/dev/null || skip "npm is not installed (scripts/setup --tests installs it)"
  log=$(mktemp)
  if ! npm ci --ignore-scripts >"$log" 2>&1; then
    cat "$log"
    # A registry that cannot be reached is not our failure; a lock file that does not fit is.
    grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|network' "$log" &&
      skip "the packages of tests/deploy cannot be fetched"
    exit 1
  fi
  cp package-lock.json node_modules/.installed
fi
exec node --test ./*.test.mjs
