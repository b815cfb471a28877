#!/usr/bin/env bash
# units_test.sh REPOSITORY: systemd takes every unit without a complaint, each is as closed as
# docs/operations.md says, and units, configuration and packages agree.
set -euo pipefail
repository=$1
command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not installed"; exit 77; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

units=$repository/deploy/systemd
mkdir -p "$root/usr/lib/systemd/system" "$root/usr/bin" "$root/bin" "$root/etc"
# Those they refer to come from the machine.
cp -r /usr/lib/systemd/system/. /lib/systemd/system/. "$root/usr/lib/systemd/system/" 2>/dev/null || true
rm -f "$root"/usr/lib/systemd/system/tandem*
cp "$units"/tandem* "$root/usr/lib/systemd/system/"
for program in usr/bin/tandem-{gateway,gpu-worker,loader,npu-worker} bin/sh; do
  printf '#!/bin/sh\n' >"$root/$program"
  chmod +x "$root/$program"
done

services=(tandem-gateway.service tandem-gpu-worker@gpu0.service tandem-loader.service
  tandem-npu-worker.service)
said=$(systemd-analyze verify --man=no --root="$root" tandem.target "${services[@]}" 2>&1) ||
  fail "systemd-analyze verify: $said"
grep -i tandem <<<"$said" && fail "systemd-analyze verify said that"

# Its exposure level, in tenths.
limits=(14 16 15 16)
for i in "${!services[@]}"; do
  level=$(systemd-analyze security --no-pager --offline=yes --root="$root" "${services[$i]}" |
    sed -n 's/.*Overall exposure level for [^:]*: \([0-9]*\)\.\([0-9]\).*/\1\2/p')
  [ -n "$level" ] || fail "${services[$i]}: no exposure level"
  [ "$((10#$level))" -le "${limits[$i]}" ] ||
    fail "${services[$i]}: exposure $level tenths, at most ${limits[$i]} are documented"
done

# The target wants what there is, and every unit reads a file that is packaged.
for service in "${services[@]}"; do
  grep -q "^Wants=.*\b$service" "$units/tandem.target" || fail "tandem.target does not want $service"
  file=$units/${service/@gpu0/@}
  config=$(sed -n 's|^ExecStart=.*--config /etc/tandem/\([^ ]*\).*|\1|p' "$file")
  [ -f "$units/etc/${config/\%i/gpu0}" ] || fail "$service reads /etc/tandem/$config: not packaged"
done
grep -q '^ExecReload=.*-HUP' "$units/tandem-gateway.service" || fail "the gateway has no reload"
# Whoever is required would be restarted with what requires it, and weights live in the loader.
grep -nE '^(Requires|BindsTo|Requisite)=' "$units"/*.service && fail "no service may require another"

if command -v systemd-sysusers >/dev/null; then
  mkdir -p "$root/etc"
  said=$(systemd-sysusers --dry-run --root="$root" "$units/sysusers.d/tandem.conf" 2>&1) ||
    fail "systemd-sysusers: $said"
fi
if command -v systemd-tmpfiles >/dev/null; then
  # Users of that root are not made, so only what it cannot parse counts.
  said=$(systemd-tmpfiles --create --root="$root" "$units/tmpfiles.d/tandem.conf" 2>&1) || true
  grep -iE 'unknown|invalid|ignoring' <<<"$said" && fail "systemd-tmpfiles said that"
fi
exit "$((failures > 0))"
