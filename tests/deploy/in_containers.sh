#!/usr/bin/env bash
# Tandem from a clean clone, in containers, as scripts/test cannot show it on its own machine:
#
#   in_containers.sh packages  makes the base image, and on it installs what building needs: all that waits for the network
#   in_containers.sh build     builds on a bare Debian 13 without a compiler cache: all that keeps processors busy
#   in_containers.sh bare      the same; then quickstart and scripts/install answer there
#   in_containers.sh compose   builds every image and runs deploy/compose (compose_test.py)
#   in_containers.sh           all
#
# The build on the bare Debian 13 is a stage of the images, so that it compiles once.  Layers of earlier runs are used
# again; with CI=true `packages` uses none, `build` those of `packages`, and the others those of `build`.  CPU_SHARES=2:
# compiles while nothing else wants the processors (of 1024 shares that others have).  Needs root.
# Where it cannot run it says why and exits with 77; with CI=true that is a failure.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
parts=${1:-all}
case "$parts" in packages | build | bare | compose | all) ;; *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
say() { printf '\033[1m==>\033[0m %s (%s)\n' "$*" "$(date +%T)"; }
die() { printf 'in_containers: %s\n' "$*" >&2; exit 1; }
skip() {
  printf 'SKIPPED: no containers, so neither a bare Debian 13 nor compose.yaml was tried: %s\n' "$*" >&2
  [ "${CI:-}" != true ] || die "CI=true does not skip this"
  exit 77
}

[ "$(id -u)" = 0 ] || skip "not root"
say "starting the container engine"
"$here/engine.sh" start || skip "the engine does not start"
eval "$("$here/engine.sh" env)"
# What a run that was cut off has left: containers of compose, and of builds.
podman ps -aq --external | xargs -r podman rm -f -t 0 >/dev/null
work=$(mktemp -d)
finish() {
  "$here/engine.sh" stop
  rm -rf "$work"
}
trap finish EXIT
podman run --rm debian:trixie-slim true >"$work/log" 2>&1 || skip "podman runs no container: $(tail -n 1 "$work/log")"

clone=$work/tandem
git clone -q "file://$repository" "$clone"
[ -z "$(git -C "$repository" status --porcelain)" ] || say "uncommitted changes are not in the clone"
commit=$(git -C "$clone" rev-parse HEAD)
if [ "${CI:-}" = true ] && [ "$parts" != bare ] && [ "$parts" != compose ]; then
  # Not by --no-cache, whose layers docker-compose would not use.
  kept='^$'
  [ "$parts" != build ] || kept='^localhost/tandem-packages:'
  podman images --format '{{.Repository}}:{{.Tag}}' --filter 'reference=localhost/tandem-*' | { grep -v "$kept" || true; } |
    xargs -r podman rmi -f >/dev/null
  podman image prune -f >/dev/null
fi

# build_stage STAGE: in Docker's format, as docker-compose asks for: layers of another are not used again.
build_stage() {
  SECONDS=0
  podman build --format docker --layers --target "$1" -f "$clone/deploy/docker/Dockerfile" -t "tandem-$1:test" \
    --build-arg "TANDEM_COMMIT=$commit" ${CPU_SHARES:+--cpu-shares "$CPU_SHARES"} "$clone" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; die "no $1 on a bare Debian 13"; }
  say "made tandem-$1 in $SECONDS s"
}
say "installing what building needs on a bare Debian 13"
build_stage packages
[ "$parts" != packages ] || exit 0
say "building ${commit:0:12} there"
build_stage build
if grep -E 'warning:|invalid-pch' "$work/log"; then die "the build on Debian 13 warns"; fi
podman run --rm tandem-build:test grep -qx 'TANDEM_CCACHE:STRING=OFF' build/release/CMakeCache.txt ||
  die "the build used a compiler cache"
[ "$parts" != build ] || exit 0

if [ "$parts" != compose ]; then
  say "quickstart and scripts/install on it"
  # The files that images are not built from join those that were compiled, as in a clone; then the default
  # configuration, with the tests, which the scripts find built.
  podman run --rm --network none -v "$clone:/clone:ro" tandem-build:test bash -c '
    set -euo pipefail
    cp -r --update=none /clone/. /src/
    cmake --preset release -DTANDEM_BUILD_TESTS=ON >/tmp/log 2>&1 || { tail -n 20 /tmp/log; exit 1; }
    scripts/quickstart
    scripts/install
    cd /
    tandem serve --model /usr/local/share/tandem/models/demo2.Q8_0.gguf --npu off >/tmp/serve.log 2>&1 &
    tries=0
    until tandem generate --chat --temperature 0 "What is the capital of France?" 2>/tmp/log; do
      [ "$((tries += 1))" -lt 120 ] || { cat /tmp/log /tmp/serve.log; exit 1; }
      sleep 1
    done
    tandem stop
    /src/scripts/install --uninstall
    [ ! -e /usr/local/bin/tandem ]' >"$work/log" 2>&1 ||
    { tail -n 40 "$work/log"; die "quickstart or scripts/install fails on a bare Debian 13"; }
  tail -n 12 "$work/log"
  grep -q Tokyo "$work/log" || die "quickstart does not answer Tokyo"
  grep -q 'A large white square at the top right' "$work/log" || die "quickstart does not see the picture"
  grep -q Paris "$work/log" || die "what scripts/install installs does not answer Paris"
fi

if [ "$parts" != bare ]; then
  say "building the images and starting deploy/compose"
  COMPOSE_PROJECT_NAME=tandem-test TANDEM_IMAGES=localhost/tandem TANDEM_VERSION=test TANDEM_COMMIT=$commit \
    python3 "$here/compose_test.py" "$clone" "$work"
fi
podman image prune -f >/dev/null || true
say "the containers do what the documents say"
