#!/usr/bin/env bash
# installed.sh PACKAGES ROOT [SUITE]: tests the installed packages as a user would have them.  Makes a bare Debian in
# ROOT (debootstrap, unless it is there), installs the packages of the folder PACKAGES, boots it with its
# own systemd in namespaces (systemd-nspawn), and has the units serve the demo model under their own
# sandboxing.  Needs root, debootstrap and systemd-container; takes minutes, so ctest does not run it.
set -euo pipefail
packages=$(realpath "$1") root=$2 suite=${3:-bookworm}
say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
die() { printf 'installed: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "not root"
for tool in debootstrap systemd-nspawn nsenter; do
  command -v "$tool" >/dev/null || die "$tool not found: install debootstrap, systemd-container, util-linux"
done
if [ ! -d "$root/usr" ]; then
  say "bare $suite in $root"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,curl,procps \
    "$suite" "$root" >/dev/null
fi

say "installing the packages"
mkdir -p "$root/tmp/packages"
cp "$packages"/*.deb "$root/tmp/packages/"
chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c '
  apt-get update -qq
  apt-get install -y -qq --reinstall --allow-downgrades -o Dpkg::Use-Pty=0 /tmp/packages/*.deb' >"$root/tmp/install.log" 2>&1 ||
  { tail -n 20 "$root/tmp/install.log"; die "apt-get install"; }
test ! -e "$root/etc/systemd/system/multi-user.target.wants/tandem.target" || die "the target was enabled unasked"
chroot "$root" id tandem

# So that the test need not wait for a minute.
mkdir -p "$root/etc/systemd/system/tandem-gpu-worker@.service.d"
printf '[Service]\nWatchdogSec=10\n' >"$root/etc/systemd/system/tandem-gpu-worker@.service.d/soon.conf"

say "booting"
systemd-nspawn --quiet --register=no --keep-unit --private-network --console=pipe -D "$root" -b \
  </dev/null >"$root/tmp/boot.log" 2>&1 &
container=$!
leader=""
stop() {
  if [ -n "$leader" ]; then kill -s RTMIN+4 "$leader" 2>/dev/null || true; fi
  wait "$container" || true
}
trap stop EXIT
for _ in $(seq 100); do
  leader=$(pgrep -P "$container" | head -n 1) && [ -n "$leader" ] && break
  sleep 0.2
done
[ -n "$leader" ] || die "no systemd: $(cat "$root/tmp/boot.log")"
inside() { nsenter -t "$leader" -a "$@"; }
for _ in $(seq 100); do
  state=$(inside systemctl is-system-running 2>/dev/null || true)
  case "$state" in running | degraded) break ;; esac
  sleep 0.3
done
say "systemd is $state"

say "starting tandem.target"
SECONDS=0
inside systemctl start tandem.target ||
  { inside journalctl --no-pager -u 'tandem-*' | tail -n 60; die "the target did not start"; }
inside systemctl --no-pager --plain list-units 'tandem*'
inside systemctl is-active --quiet tandem-gateway.service ||
  { inside journalctl --no-pager -u 'tandem-*' | tail -n 60; die "the gateway is not active"; }
say "it serves after $SECONDS s"
inside tandem status
answer=$(inside tandem generate --chat --temperature 0 "What is the capital of Japan?")
say "it answers: $answer"
grep -q Tokyo <<<"$answer" || die "that is not what the demo model says"
inside curl -sf localhost:8080/v1/models >/dev/null || die "HTTP does not answer"
for port in 9464 9465 9467; do
  inside curl -sf "localhost:$port/metrics" | grep -q '^tandem_' || die "no metrics on port $port"
done

say "what a service of the system may do"
for unit in tandem-loader tandem-gpu-worker@gpu0 tandem-gateway; do
  pid=$(inside systemctl show -P MainPID "$unit")
  inside sh -c "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$pid/status | tr '\n\t' '  '; echo $unit"
  inside grep -q '^Seccomp:[[:space:]]*2' "/proc/$pid/status" || die "$unit runs without a system-call filter"
  inside grep -q '^CapEff:[[:space:]]*0000000000000000' "/proc/$pid/status" || die "$unit has capabilities"
  # In its own view of the file system.
  ! inside nsenter -t "$pid" -m -- touch /usr/here 2>/dev/null || die "$unit could write /usr"
done

say "restarting the loader, first in order, then by kill -9"
memory_of_worker() {
  pid=$(inside systemctl show -P MainPID tandem-gpu-worker@gpu0)
  inside cat "/proc/$pid/maps" | awk '/memfd:tandem-weights/ && !seen++ {print $5}'
}
worker_memory=$(memory_of_worker)
kept=$(inside systemctl show -P NFileDescriptorStore tandem-loader)
[ "$kept" -ge 2 ] || die "systemd keeps $kept descriptors of the loader"
inside systemctl restart tandem-loader
inside systemctl kill --signal=KILL tandem-loader
for _ in $(seq 100); do
  [ "$(inside systemctl show -P NRestarts tandem-loader)" = 1 ] &&
    [ "$(inside systemctl is-active tandem-loader || true)" = active ] && break
  sleep 0.3
done
adopted=$(inside journalctl --no-pager -u tandem-loader | grep -c 'from="service manager"' || true)
[ "$adopted" -ge 2 ] || die "weights were taken up $adopted times, not twice"
say "a worker that starts now maps what the first one did"
inside systemctl restart tandem-gpu-worker@gpu0
answer=$(inside tandem generate --chat --temperature 0 "What is the capital of Japan?")
grep -q Tokyo <<<"$answer" || die "no answer after the restarts: $answer"
now=$(memory_of_worker)
echo "inode of the weights: $worker_memory, then $now"
[ -n "$now" ] && [ "$now" = "$worker_memory" ] || die "another memory"

say "a worker that hangs is found by its watchdog"
pid=$(inside systemctl show -P MainPID tandem-gpu-worker@gpu0)
limit=$(inside systemctl show -P WatchdogUSec tandem-gpu-worker@gpu0)
inside kill -STOP "$pid"
for _ in $(seq 400); do
  [ "$(inside systemctl show -P MainPID tandem-gpu-worker@gpu0)" != "$pid" ] && break
  sleep 0.3
done
[ "$(inside systemctl show -P MainPID tandem-gpu-worker@gpu0)" != "$pid" ] || die "still there after its watchdog's $limit"
answer=$(inside tandem generate --chat --temperature 0 "What is the capital of Japan?")
grep -q Tokyo <<<"$answer" || die "no answer after the watchdog: $answer"

say "stopping"
inside systemctl stop tandem.target
[ "$(inside systemctl --no-pager --plain --no-legend list-units --state=failed 'tandem*' | wc -l)" = 0 ] ||
  die "a unit failed: $(inside systemctl --no-pager list-units --state=failed 'tandem*')"
for _ in $(seq 30); do
  kept=$(inside systemctl show -P NFileDescriptorStore tandem-loader)
  [ "$kept" = 0 ] && break
  sleep 0.3
done
[ "$kept" = 0 ] || die "systemd keeps $kept descriptors after the end"
say "all of it holds"
