#!/usr/bin/env bash
# install_test.sh REPOSITORY: scripts/install into a temporary prefix.  The installed programs serve from there; a
# second installation changes nothing; removing leaves other files alone.
set -euo pipefail
repository=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/tandem-install.XXXXXX")
server=""
stop() {
  if [ -n "$server" ]; then kill -TERM "$server" 2>/dev/null || true; wait "$server" || true; fi
  rm -rf "$work"
}
trap stop EXIT
die() { echo "install_test: $*" >&2; exit 1; }
prefix=$work/prefix
install() { "$repository/scripts/install" --prefix "$prefix" "$@"; }
expect_file() { [ -f "$prefix/$1" ] || die "$1 was not installed"; }

mkdir -p "$prefix/bin" "$prefix/share/tandem"
echo mine >"$prefix/bin/mine"
install --no-build
for file in bin/tandem bin/tandem-{gateway,gpu-worker,loader,health} lib/tandem/tandem-image-decoder share/man/man1/tandem.1.gz \
    share/man/man8/tandem-gateway.8.gz share/bash-completion/completions/tandem share/zsh/site-functions/_tandem share/fish/vendor_completions.d/tandem.fish \
    share/tandem/models/demo2.Q8_0.gguf share/tandem/models/demo2.mmproj-F16.gguf share/doc/tandem-common/README.md share/doc/tandem-common/docs/operations.md \
    share/doc/tandem-gateway/{sbom.cdx.json,THIRD-PARTY-NOTICES.txt}; do
  expect_file "$file"
done
for folder in etc lib/systemd lib/sysusers.d lib/tmpfiles.d share/lintian; do
  [ ! -e "$prefix/$folder" ] || die "$folder is the system's"
done
[ "$("$prefix/bin/tandem" --version)" = "$("$repository/build/release/bin/tandem" --version)" ] || die "another version"

echo "== the installed programs find each other and their files"
npu=off
[ -x "$prefix/bin/tandem-npu-worker" ] && [ -d "$prefix/lib/tandem/xrt-emulated" ] && npu=emulate
mkdir "$work/elsewhere"
cd "$work/elsewhere"
env PATH="$prefix/bin:/usr/bin:/bin" tandem serve --model "$prefix/share/tandem/models/demo2.Q8_0.gguf" --npu "$npu" \
  --runtime-dir "$work/run" --port 0 --http off >"$work/serve.log" 2>&1 &
server=$!
export TANDEM_ADDRESS=unix:$work/run/gateway.sock
"$prefix/bin/tandem" status --wait 60 >/dev/null || die "no cluster: $(cat "$work/serve.log" "$work"/run/logs/*.log)"
answer=$("$prefix/bin/tandem" generate --chat --temperature 0 "What is the capital of Japan?")
grep -q Tokyo <<<"$answer" || die "it answers: $answer"
answer=$("$prefix/bin/tandem" generate --chat --temperature 0 --image "$prefix/share/doc/tandem-demo-model/shapes.png" "How many shapes are there?")
grep -q 'There are three shapes' <<<"$answer" || die "of a picture it says: $answer"

echo "== a second time, while it serves"
(cd "$prefix" && find . -type f -exec sha256sum {} + | sort) >"$work/first"
touch "$prefix/share/tandem/of-an-older-version"
printf 'share/tandem/of-an-older-version\n' | LC_ALL=C sort -o "$prefix/share/tandem/installed-files" - \
  "$prefix/share/tandem/installed-files"
install --no-build
[ ! -e "$prefix/share/tandem/of-an-older-version" ] || die "a file of an older version was kept"
(cd "$prefix" && find . -type f -exec sha256sum {} + | sort) >"$work/second"
cmp "$work/first" "$work/second" || die "a second installation differs"
"$prefix/bin/tandem" status >/dev/null || die "the running cluster is gone"
kill -TERM "$server"; wait "$server" || die "serve ended with $?"; server=""

echo "== removing"
install --uninstall
left=$(cd "$prefix" && find . -type f)
[ "$left" = ./bin/mine ] || die "left: $left"
[ ! -e "$prefix/share" ] || die "empty folders were left"
! install --uninstall 2>"$work/error" || die "removed twice"
grep -q "nothing was installed under $prefix" "$work/error" || die "it says: $(cat "$work/error")"
! install --nonsense 2>/dev/null || die "an unknown option is taken"
echo "all of it holds"
