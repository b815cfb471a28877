#!/usr/bin/env python3
"""Attacks a gateway on loopback and measures what its other clients notice: overload_test.py PROGRAMS [--long]

For each attack: its own loader, worker and gateway; a victim's latency without and beside the attack; the gateway's memory,
descriptors and threads before, during and after.  README.md lists the failures.  Ends with a table; exit status 1: a failure.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import cases
from services import SanitizerReports, Services, Usage, Watch, processor_seconds
from victims import measure, use, victims

HERE = pathlib.Path(__file__).resolve().parent
MEMORY_LIMIT = 512 << 20
# An attack that gets so far is stopped, so that the machine survives what the gateway does not bound.
STOP_AT = 1536 << 20
MEMORY_SHARE = 1.1  # of what was there before, in use by ordinary clients
DESCRIPTOR_SLACK = 4  # gRPC keeps some eventfds
THREAD_SLACK = 4
# An attack lasts at least so long beside the victims.
WINDOW_S = 1.2
IDLE_SHARE = 0.5  # of one processor
END_S = 20


class Failure(Exception):
    """A case cannot go on."""


class Attack:
    """An attack as a program of its own, which makes what it sends before the first turn."""

    def __init__(self, case, services):
        command = [sys.executable, "-B", HERE / "attacks.py", case.attack, "--http", services.http,
                   "--grpc", services.unix if case.unix else services.grpc, "--metrics", services.metrics, "--turns"]
        if case.keys:
            command += ["--key", "attacker"]
        self.name = case.attack
        # A process group of its own, so that stop() ends a turn too.  Not a session: the kernel would give it as much
        # of the processors as all else here, and its nice value would not count.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=os.setpgrp)
        self.stopped = False

    def wait_for(self, word):
        line = self.process.stdout.readline().decode().strip()
        if line != word and not self.stopped:
            raise Failure(f"the attack {self.name} is not {word}: {line}")

    def tell(self):
        with contextlib.suppress(BrokenPipeError):  # stopped
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def begin(self):
        """Returns once the attack is under way."""
        self.tell()
        self.wait_for("under way")

    def pause(self):
        self.tell()
        self.wait_for("over")

    def stop(self):
        """Ends it for good; what waits for it goes on."""
        self.stopped = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self):
        self.stop()
        self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def recovered(services, before, asked, sanitized):
    """What has not come back to its value before yet; empty: all has.  `sanitized`: but for memory, which sanitizers keep."""
    left = []
    pid = services.gateway.pid
    begin, used = time.monotonic(), processor_seconds(pid)
    time.sleep(0.25)
    busy = (processor_seconds(pid) - used) / (time.monotonic() - begin)
    if busy > IDLE_SHARE:
        left.append(f"busy: {busy:.0%} of a processor with no client")
    now = Usage(pid)
    if now.resident > before.resident * MEMORY_SHARE and not sanitized:
        left.append(f"memory: {now.resident >> 20} MB resident, {before.resident >> 20} before")
    if now.descriptors > before.descriptors + DESCRIPTOR_SLACK:
        left.append(f"descriptors: {now.descriptors}, {before.descriptors} before")
    if now.threads > before.threads + THREAD_SLACK:
        left.append(f"threads: {now.threads}, {before.threads} before")
    for victim in asked.values():  # new connections are let in
        victim.close()
    for kind, latencies in measure(asked, 1, 1).items():
        if latencies.failures:
            left.append(f"{kind}: {latencies.failures[0]}")
    for victim in asked.values():
        victim.close()
    return left


def wait_until_idle(pid, patience=10):
    """Until the gateway has done what an attack left it to do."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        begin, used = time.monotonic(), processor_seconds(pid)
        time.sleep(0.1)
        if processor_seconds(pid) - used < 0.3 * (time.monotonic() - begin):
            return


class Pairs:
    """Latencies in pairs of windows, without and beside the attack.

    The median of the pairs is judged: what else the machine does slows one pair, the attack slows all.
    """

    def __init__(self, case, slack):
        self.case = case
        self.slack = slack  # seconds
        self.pairs = {kind: [] for kind in case.victims}  # (unloaded, beside, bound in seconds)

    def add(self, unloaded, beside, steps):
        allowed = steps.longest() if steps else 0
        for kind, pairs in self.pairs.items():
            bound = self.case.ratio * unloaded[kind].p99 + allowed + self.case.waits.get(kind, 0) + self.slack
            pairs.append((unloaded[kind], beside[kind], bound))

    def decided(self, most):
        """Whether `most` pairs would have the medians that there are: more than half are within the bound, or over it."""
        def same(pairs):
            over = sum(beside.p99 > bound for _, beside, bound in pairs)
            return 2 * max(over, len(pairs) - over) > most
        return all(same(pairs) for pairs in self.pairs.values())

    def judge(self, result):
        for kind, pairs in self.pairs.items():
            if not pairs:
                continue
            unloaded, beside, bound = sorted(pairs, key=lambda pair: pair[1].p99 / pair[2])[len(pairs) // 2]
            failures = [failure for _, latencies, _ in pairs for failure in latencies.failures]
            result["latencies"][kind] = {
                "unloaded_ms": [round(unloaded.p50 * 1e3, 1), round(unloaded.p99 * 1e3, 1)],
                "beside_ms": [round(beside.p50 * 1e3, 1), round(beside.p99 * 1e3, 1)],
                "bound_ms": round(bound * 1e3, 1), "pairs": len(pairs),
                "samples": sum(len(latencies.samples) for _, latencies, _ in pairs), "failed": len(failures),
                "failures": failures[:3]}
            result["slow"] += [f"{kind}: {failure}" for failure in failures if failure.startswith("TimeoutError")]
            if beside.p99 > bound:
                why = f" ({failures[0]})" if failures else ""
                result["slow"].append(f"{kind}: p99 {beside.p99 * 1e3:.1f} ms beside, bound {bound * 1e3:.1f} ms{why}")


def run(case, options):
    """One attempt: what was measured, as a dict; "failures" are of the gateway, "slow" of latencies alone."""
    num_pairs, samples, seconds = (5, 300, 10) if options.long else (1, 50, 3) if options.sanitized else (3, 50, 2)
    begin = time.monotonic()
    result = {"attack": case.name, "failures": [], "slow": [], "latencies": {}}
    services = Services(options.programs, *case.flags, descriptors=case.descriptors, keys=case.keys)
    attack, watch = Attack(case, services), None
    pairs = Pairs(case, options.slack_ms / 1e3)
    try:
        pid = services.gateway.pid
        tenant = "tenant" if case.keys else None
        use(case.victims, services, tenant)
        asked = victims(case.victims, services, tenant)
        measure(asked, 20, 2)
        wait_until_idle(pid)
        attack.wait_for("ready")
        before = Usage(pid)
        watch = Watch(pid, (4 if options.sanitized else 1) * STOP_AT, attack.stop)
        for _ in range(num_pairs):
            wait_until_idle(pid)
            unloaded = measure(asked, samples, seconds)
            steps = cases.Steps(services) if case.step else None
            attack.begin()
            begun = time.monotonic()
            # As many samples as without the attack: the highest of more would be higher.
            beside = measure(asked, samples, seconds)
            time.sleep(max(0.0, begun + WINDOW_S - time.monotonic()))
            pairs.add(unloaded, beside, steps)
            if attack.stopped:  # by the watch
                break
            result["failures"] += case.judge(services) if case.judge else []
            attack.pause()
            if not options.long and pairs.decided(num_pairs):
                break
        for victim in asked.values():
            victim.close()
        ended = time.monotonic()
        while services.gateway.poll() is None:
            left = recovered(services, before, asked, options.sanitized)
            result["recovery_s"] = round(time.monotonic() - ended, 1)
            if not left:
                break
            if time.monotonic() - ended > options.patience:
                result["failures"] += [f"after {options.patience:.0f} s: {what}" for what in left]
                break
            time.sleep(0.25)
        watch.end()
        result.update(descriptors=[before.descriptors, watch.descriptors], threads=[before.threads, watch.threads],
                      memory=[before.resident >> 20, watch.peak >> 20])
        if watch.peak > MEMORY_LIMIT and not options.sanitized:
            result["failures"].append(f"memory: {watch.peak >> 20} MB")
        if services.gateway.poll() is None:
            after = Usage(pid)
            for name, value in (("descriptors", after.descriptors), ("threads", after.threads),
                                ("memory", after.resident >> 20)):
                result[name].append(value)
        else:
            lines = services.log().strip().splitlines()
            result["failures"].append(f"ended with {services.gateway.returncode}: {lines[-1][:300] if lines else ''}")
    except OSError as error:  # it has ended while it was looked at
        result["failures"].append(f"{type(error).__name__}: {error}; exit status {services.gateway.poll()}")
    except Failure as error:
        result["failures"].append(str(error))
    finally:
        attack.end()
        if watch:
            watch.end()
        lives = services.gateway.poll() is None
        status = services.end(END_S)
        if lives and status != 0:
            result["failures"].append(f"after SIGTERM: {f'status {status}' if status else f'not ended in {END_S} s'}")
    pairs.judge(result)
    if options.sanitized:
        result["slow"] = []
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def row(result):
    """The table's rows of one attack."""
    for kind, latency in result["latencies"].items():
        u, b = latency["unloaded_ms"], latency["beside_ms"]
        held = "".join(f" {'/'.join(map(str, result.get(name, '-'))):>14}" for name in ("memory", "descriptors", "threads"))
        yield (f"{result['attack']:22} {kind:8} {u[0]:6.1f} {u[1]:7.1f}  {b[0]:7.1f} {b[1]:8.1f} {latency['bound_ms']:7.1f} "
               f"{latency['failed']:3}/{latency['samples']:<4}{held} {result.get('recovery_s', '-'):>5} "
               f"{result['seconds']:6.1f}  {'FAILED' if result['failures'] or result['slow'] else 'ok'}")


HEADING = (f"{'attack':22} {'victim':8} {'p50':>6} {'p99':>7}  {'beside50':>7} {'99':>8} {'bound':>7} {'failed':8}"
           f"{'MB b/peak/a':>15} {'descriptors':>14} {'threads':>14} {'back':>5} {'all s':>6}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path, help="folder of tandem-gateway, tandem-loader, reference_worker")
    parser.add_argument("--long", action="store_true", help="every case, five pairs of more samples")
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=[case.name for case in cases.CASES])
    parser.add_argument("--attempts", type=int, default=3, help="tries of a case whose latencies alone were over their bound")
    parser.add_argument("--patience", type=float, default=60, help="seconds until the gateway must be as before")
    parser.add_argument("--slack-ms", type=float, default=0,
                        help="allowed beyond the bound: where few processors are shared with the attack and the victims")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    parser.add_argument("--sanitized", action="store_true",
                        help="programs with sanitizers: memory and latencies are measured, not judged")
    options = parser.parse_args()
    reports = SanitizerReports()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    results = []
    for case in cases.CASES:
        if case.name not in options.only if options.only else not (case.short or options.long):
            continue
        for attempt in range(1, options.attempts + 1):
            result = run(case, options)
            result["attempts"] = attempt
            if result["failures"] or not result["slow"]:
                break
        results.append(result)
        if len(results) == 1:
            print(HEADING)
        print("\n".join(row(result)), flush=True)
        for kind, latency in result["latencies"].items():
            for failure in latency["failures"]:
                print(f"  {case.name}, attempt {attempt}: a request of {kind} failed: {failure}", flush=True)
        for failure in result["failures"] + result["slow"]:
            print(f"  {case.name}, attempt {attempt}: {failure}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    failed = [result["attack"] for result in results if result["failures"] or result["slow"]]
    print(f"{len(results)} attacks, {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}")
    sys.exit(1 if reports.end() or failed else 0)


if __name__ == "__main__":
    main()
