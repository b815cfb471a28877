#!/usr/bin/env python3
"""The fault matrix under 16 mixed streams: faults_test.py PROGRAMS [--long]

Every service is killed and stopped, the disk is full, and workers answer late, twice and garbled.  Every text must be what it is
without a fault, and a stream may end only by a policy in README.md.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from services import SanitizerReports, Services, Usage
from streams import Streams

DESCRIPTOR_SLACK = 2  # a channel that connects again at the moment of the look
RECOVERY_S = 120
SERVICES = ("gpu", "npu", "loader", "gateway")


class Fault(Exception):
    """The cluster did not come back."""


def wait_for_status(services, what, done):
    end = time.monotonic() + RECOVERY_S
    status = None
    while time.monotonic() < end:
        try:
            status = services.status()
            if done(status):
                return status
        except OSError:
            if services.gateway.poll() is not None:
                raise Fault(f"the gateway ended with {services.gateway.returncode}") from None
        time.sleep(0.01)
    raise Fault(f"not {what} after {RECOVERY_S} s: {status}")


def recoveries(services):
    return int(wait_for_status(services, "answering", lambda status: True).get("recoveries", 0))


def wait_for_recovery(services, before):
    wait_for_status(services, "recovered", lambda status: int(status.get("recoveries", 0)) > before and
                    status["state"] == "ready")


def under_way(streams, count=1):
    """Waits until `count` answers more have come: every fault strikes streams, not silence."""
    until, end = streams.answers + count, time.monotonic() + RECOVERY_S
    while streams.answers < until:
        if time.monotonic() > end or not any(thread.is_alive() for thread in streams.threads):
            raise Fault(f"no answer for {RECOVERY_S} s")
        time.sleep(0.005)
    time.sleep(random.uniform(0, 0.1))  # the moment is random


def kill(services, streams, service):
    """kill -9; it is started again at once, as a supervisor does."""
    if service == "gateway":
        streams.kill_gateway(services)
        return
    before = recoveries(services)
    services.kill(service)
    services.start(service)
    if service != "loader":
        wait_for_recovery(services, before)


def stop(services, streams, service):
    """SIGSTOP until it has been missed, then SIGCONT."""
    before = recoveries(services)
    services.signal(service, signal.SIGSTOP)
    try:
        if service in services.workers:
            wait_for_status(services, "recovering", lambda status: status["state"] == "recovering")
        else:
            time.sleep(0.5)  # nothing is to be seen of it
    finally:
        services.signal(service, signal.SIGCONT)
    if service in services.workers:
        wait_for_recovery(services, before)


def spoil(services, streams, proxy):
    """One answer of the worker is late, sent twice, garbled or lost."""
    before = recoveries(services)
    services.signal(proxy, signal.SIGUSR1)
    wait_for_recovery(services, before)


class Descriptors:
    """The open files of the services before the first fault, and which services have more after the last."""

    def __init__(self, services):
        self.services = services
        self.before = {name: (process.pid, Usage(process.pid).descriptors) for name, process in services.processes.items()}

    def leaked(self):
        """A message for each service that has lived through all faults and keeps more than it had."""
        end = time.monotonic() + 30
        while True:
            left = []
            for name, (pid, before) in self.before.items():
                if self.services.processes[name].pid == pid:
                    now = Usage(pid).descriptors
                    if now > before + DESCRIPTOR_SLACK:
                        left.append(f"{name}: {now} open files, {before} before the first fault")
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.25)


class Matrix:
    def __init__(self, options):
        self.options = options
        self.failed = False
        self.expected = None  # the clients' texts, by the first cluster before its first fault

    def run(self, name, faults, folder=None, finish=None, **setup):
        """A cluster, the streams, each (fault, service) of `faults` in turn; prints one line."""
        begin = time.monotonic()
        services = Services(self.options.programs, "--segment-deadline", str(self.options.deadline), "--worker-wait", "60",
                            npu=True, devices=self.options.devices, folder=folder, **setup)
        failures, done, streams = [], 0, None
        try:
            streams = Streams(services, self.expected)
            self.expected = streams.expected
            descriptors = Descriptors(services)
            streams.start()
            for fault, service in faults:
                under_way(streams)
                fault(services, streams, service)
                done += 1
                if streams.failures:
                    break
            streams.end()
            if not streams.failures:
                failures += descriptors.leaked()
        except (Fault, RuntimeError, OSError) as error:
            failures.append(f"{type(error).__name__}: {error}")
        finally:
            if streams:
                streams.stopping.set()
                failures += streams.failures[:10]
            logs = {name: services.log(name)[-1500:] for name in services.processes} if failures else {}
            if services.end() != 0:
                failures.append("the gateway did not end in order")
        ended = ", ".join(f"{count} ended: {policy}" for policy, count in sorted(streams.ended.items())) if streams else ""
        print(f"{name:34} {done:4} faults, {streams.answers if streams else 0:5} answers as without, "
              f"{ended or 'none ended'}, {time.monotonic() - begin:.0f} s: {'FAILED' if failures else 'ok'}", flush=True)
        for failure in failures:
            print(f"  {failure}"[:2000])
        for service, log in logs.items():
            print(f"  --- {service}.log\n{log}")
        self.failed = self.failed or bool(failures)

    def kills(self):
        for service in self.options.services or SERVICES:
            self.run(f"kill {service}", [(kill, service)] * self.options.kills)
        if not self.options.long or self.options.services:
            return
        mixed = random.Random(14).choices(SERVICES, k=self.options.kills)
        self.run("kill any", [(kill, service) for service in mixed])

    def each(self):
        """One cluster in which each service is killed once: what CI runs with the sanitizers."""
        self.run("kill each once", [(kill, service) for service in SERVICES])

    def stops(self):
        turns = SERVICES * max(1, self.options.kills // 20)
        self.run("stop and go on", [(stop, service) for service in turns])

    def answers(self):
        late = ["--late-ms", str(int(self.options.deadline * 1300))]
        self.run("late, twice, garbled, lost", [(spoil, f"{worker}-proxy") for _ in range(self.options.kills)
                                                for worker in ("gpu", "npu")],
                 proxies={"gpu": [*late, "--first", "0"], "npu": [*late, "--first", "3"]})

    def full_disk(self):
        """Logs, sockets and caches are on a disk without a free byte, and services start on it."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-disk-"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True, check=False)
        if mounted.returncode != 0:
            print(f"{'full disk':34} skipped: {mounted.stderr.decode().strip()}", flush=True)
            folder.rmdir()
            return
        try:
            (folder / "cluster").mkdir()

            def fill(services, streams, _):
                with open(folder / "all", "wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(bytes(4096))
                    except OSError:
                        pass
                if shutil.disk_usage(folder).free:
                    raise Fault("the disk is not full")

            kills = [(kill, service) for service in SERVICES]
            self.run("full disk", [(fill, None), *kills], folder=folder / "cluster")
        finally:
            subprocess.run(["umount", "-l", folder], check=False)
            folder.rmdir()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path, help="folder of the four services, reference_worker and answer_proxy")
    parser.add_argument("--long", action="store_true", help="100 kills of each service and 100 of any, 100 spoilt answers a worker")
    parser.add_argument("--kills", type=int, help="of each service, and spoilt answers of each worker: 3, or 100 with --long")
    parser.add_argument("--deadline", type=float, default=2, help="seconds after which a worker counts as lost")
    parser.add_argument("--devices", action="store_true", help="Vulkan and the emulated NPU in place of reference_worker")
    parser.add_argument("--only", nargs="+", choices=("kills", "each", "stops", "answers", "full_disk"))
    parser.add_argument("--services", nargs="+", choices=SERVICES, help="kill these alone")
    options = parser.parse_args()
    options.programs = options.programs.resolve()
    options.kills = options.kills or (100 if options.long else 3)
    # The disk to fill is in a mount namespace of our own, which nobody else sees.
    if os.environ.get("TANDEM_FAULTS_NAMESPACE") is None:
        os.environ["TANDEM_FAULTS_NAMESPACE"] = "1"
        for flags in (["--mount"], ["--map-root-user", "--mount"]):
            if subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False).returncode == 0:
                os.execvp("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reports = SanitizerReports()
    matrix = Matrix(options)
    for part in options.only or ("kills", "stops", "answers", "full_disk"):
        if not matrix.failed or options.long:
            getattr(matrix, part)()
    matrix.failed = reports.end() or matrix.failed
    sys.exit(1 if matrix.failed else 0)


if __name__ == "__main__":
    main()
