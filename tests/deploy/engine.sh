#!/usr/bin/env bash
# A container engine for tests, where there is neither a Docker daemon nor an image registry: podman on runc, and
# debian:trixie-slim (and others by name) made by debootstrap.
#
#   engine.sh start [SUITE...]   installs missing packages, makes the images (default: trixie), starts the socket
#   engine.sh env                prints what to export for podman and docker-compose
#   engine.sh stop               ends the socket's service
#
# Its images, volumes and networks are in TANDEM_ENGINE (default /var/tmp/tandem-engine), apart from the machine's
# own.  They are kept for the next run; remove the folder to be rid of them.
#
# What to mind: crun refuses control groups of version 1 and limits that it may not raise; runc does not.  Podman 4.3
# knows no size= for volumes in memory (compose.engine.yaml).  A container that `podman kill` ended is not started
# again, as with Docker; one whose process was killed is.
set -euo pipefail
state=${TANDEM_ENGINE:-/var/tmp/tandem-engine}
socket=$state/podman.sock
export CONTAINERS_CONF=$state/containers.conf CONTAINERS_STORAGE_CONF=$state/storage.conf
die() { printf 'engine: %s\n' "$*" >&2; exit 1; }

install_packages() {
  local missing=() package
  for package in podman runc netavark aardvark-dns iptables debootstrap docker-compose git; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" \
    >"$state/packages.log" 2>&1 || { tail -n 5 "$state/packages.log" >&2; die "cannot install ${missing[*]}"; }
}

configure() {
  local limit
  limit=$(ulimit -Hn)
  mkdir -p "$state/networks"
  cat >"$CONTAINERS_CONF" <<CONF
[engine]
runtime = "runc"
[network]
network_backend = "netavark"
network_config_dir = "$state/networks"
[containers]
default_ulimits = ["nofile=$limit:$limit", "nproc=4096:4096"]
CONF
  cat >"$CONTAINERS_STORAGE_CONF" <<CONF
[storage]
driver = "overlay"
graphroot = "$state/storage"
runroot = "$state/run"
CONF
}

# A bare Debian, as Docker's is: apt keeps no packages that it has installed.
make_image() {
  local suite=$1 image=docker.io/library/debian:$1-slim root=$state/$1
  if podman image exists "$image"; then return; fi
  rm -rf "$root"
  debootstrap --variant=minbase "$suite" "$root" >"$root.log" 2>&1 ||
    { tail -n 3 "$root.log" >&2; die "debootstrap cannot make $suite"; }
  echo 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };' \
    >"$root/etc/apt/apt.conf.d/docker-clean"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" -c . | podman import --quiet - "$image" >/dev/null
  rm -rf "$root"
}

case "${1:-}" in
  start)
    shift
    [ "$(id -u)" = 0 ] || die "not root: containers are made as root"
    command -v apt-get >/dev/null || die "apt-get not found: Debian 12 or 13 is needed"
    mkdir -p "$state"
    install_packages
    configure
    [ $# -gt 0 ] || set -- trixie
    for suite in "$@"; do make_image "$suite"; done
    # The number may be another process's by now: a run that was cut off leaves the file.
    if ! { [ -e "$state/service.pid" ] && grep -qs podman "/proc/$(cat "$state/service.pid")/cmdline"; }; then
      rm -f "$socket"
      setsid podman system service --time=0 "unix://$socket" >"$state/service.log" 2>&1 &
      echo $! >"$state/service.pid"
      for _ in $(seq 100); do
        if [ -S "$socket" ]; then break; fi
        sleep 0.1
      done
      [ -S "$socket" ] || { tail -n 3 "$state/service.log" >&2; die "podman's service did not start"; }
    fi ;;
  env)
    printf 'export CONTAINERS_CONF=%q CONTAINERS_STORAGE_CONF=%q DOCKER_HOST=%q\n' \
      "$CONTAINERS_CONF" "$CONTAINERS_STORAGE_CONF" "unix://$socket" ;;
  stop)
    if [ -e "$state/service.pid" ]; then
      if grep -qs podman "/proc/$(cat "$state/service.pid")/cmdline"; then kill "$(cat "$state/service.pid")"; fi
      rm -f "$state/service.pid" "$socket"
    fi ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
