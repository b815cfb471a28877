#!/usr/bin/env bash
# setup_test.sh REPOSITORY: what scripts/setup and scripts/install ask of root, in a copy with programs in place of
# apt's, dpkg's and sudo.
set -euo pipefail
repository=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/tandem-setup.XXXXXX")
trap 'rm -rf "$work"' EXIT
die() { echo "setup_test: $*" >&2; exit 1; }
mkdir -p "$work/bin" "$work/tools" "$work/clone/scripts"
cp "$repository"/scripts/{setup,install} "$work/clone/scripts/"
calls=$work/calls
# $1: its name; then its lines.  Links to the machine's own programs have a folder of their own, so that nothing is
# written through them.
program() { { echo '#!/usr/bin/env bash'; printf '%s\n' "${@:2}"; } >"$work/bin/$1"; chmod +x "$work/bin/$1"; }
for tool in bash cat chmod cut dirname env grep head mkdir mktemp realpath rm sed sort touch; do
  ln -s "$(command -v "$tool")" "$work/tools/$tool"
done
# In $work/missing: the packages that are not installed.
program dpkg-query "if grep -qx -- \"\${*: -1}\" '$work/missing'; then exit 1; fi; echo installed"
program apt-cache 'exit 0'
program apt-get "echo \"apt-get \$* by \$(id -u)\" >>'$calls'"
program id "cat '$work/uid'"
setup() { : >"$calls"; env -i PATH="$work/bin:$work/tools" HOME="$work" "$work/clone/scripts/setup" "$@" >"$work/said" 2>&1; }

echo 1000 >"$work/uid"
: >"$work/missing"
echo "== nothing is missing: neither sudo nor apt"
setup || die "it asks for root: $(cat "$work/said")"
[ ! -s "$calls" ] || die "it ran $(cat "$calls")"

echo "== only a package that the release may lack: no error without sudo"
echo libxrt-dev >"$work/missing"
setup || die "it ends: $(cat "$work/said")"
grep -q 'libxrt-dev is not installed' "$work/said" || die "it says: $(cat "$work/said")"

echo "== a package is missing: an error that names it"
echo cmake >"$work/missing"
! setup || die "a package is missing, and it ends with 0"
grep -q 'sudo is not installed.*cmake' "$work/said" || die "it says: $(cat "$work/said")"
setup --no-packages || die "it looks at packages: $(cat "$work/said")"

echo "== with sudo"
program sudo "echo 0 >'$work/uid'; \"\$@\"; code=\$?; echo 1000 >'$work/uid'; exit \$code"
setup || die "with sudo: $(cat "$work/said")"
grep -q 'install.* cmake by 0$' "$calls" || die "it ran $(cat "$calls")"

echo "== scripts/install as root in another user's clone: packages by root, the rest by the owner"
echo 0 >"$work/uid"
program setup.fake "echo \"setup \$* by \$(id -u)\" >>'$calls'"
cp "$work/bin/setup.fake" "$work/clone/scripts/setup"
program stat 'echo somebody'
program getent 'echo somebody:x:1000:1000::/home/somebody:/bin/sh'
program chown 'exit 0'
program runuser "shift 3; echo 1000 >'$work/uid'; \"\$@\"; code=\$?; echo 0 >'$work/uid'; exit \$code"
printf '#!/usr/bin/env bash\nexit 1\n' >"$work/clone/scripts/build"
chmod +x "$work/clone/scripts/build"
: >"$calls"
! env -i PATH="$work/bin:$work/tools" HOME="$work" "$work/clone/scripts/install" >"$work/said" 2>&1 || die "the build failed"
printf 'setup --packages by 0\nsetup --no-packages by 1000\n' | cmp - "$calls" || die "it ran: $(cat "$calls" "$work/said")"
echo "all of it holds"
