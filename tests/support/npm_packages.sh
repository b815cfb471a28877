# shellcheck shell=bash
# Sourced by the run.sh of a folder of tests with packages from npm.

# Ends the test as not run, out loud: something needed is not there.
skip() { echo "SKIPPED: $*"; exit 77; }

# Installs the current folder's packages as its lock file has them.
install_packages() {
  command -v node >/dev/null || skip "node is not installed (scripts/setup --tests installs it)"
  [ "$(node -p 'process.versions.node.split(".")[0] >= 18')" = true ] || skip "node is older than 18: $(node --version)"
  if cmp -s package-lock.json node_modules/.installed; then return; fi
  command -v npm >/dev/null || skip "npm is not installed (scripts/setup --tests installs it)"
  local log
  log=$(mktemp)
  if ! npm ci --ignore-scripts >"$log" 2>&1; then
    cat "$log"
    # A registry that cannot be reached is not our failure; a lock file that does not fit is.
    grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|network' "$log" &&
      skip "the packages of $PWD cannot be fetched"
    exit 1
  fi
  cp package-lock.json node_modules/.installed
}
