#!/usr/bin/env python3
"""Measures what metrics and tracing cost: decode throughput with both on against both off, in pairs.

    tests/bench/observability_cost.py --tandem build/release/bin/tandem --model models/demo/demo.Q8_0.gguf

Two clusters of the same model run side by side, one at a time under load (`tandem bench`, no prompts):

  off  no page of metrics, so that the gateway counts nothing, and no trace kept or exported
  on   every service's page, read once a second; every request's spans exported to a collector that
       this program plays

The order alternates. A pair is the quotient of its two decode rates; it prints the median over
the pairs with its 95% interval (by order statistics, no assumption on the noise), as a cost in per cent. Runs
are short, so that a machine whose speed wanders is about as fast in both halves of a pair; spans exported in
the background may then fall into either half. So the processors' time that each cluster has used for a token
is printed too, the background's included. On lavapipe set LP_NUM_THREADS=0: its threads wake one another for
every dispatch, and how long that takes on an idle machine drowns everything else.
"""
import argparse
import http.server
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

# After --metrics-port.
PAGES = {"gateway": 0, "gpu": 1, "loader": 3, "supervisor": 4}


def median_interval(values, confidence=0.95):
    """Median, and the two values between which the true one lies with that confidence or more."""
    ordered = sorted(values)
    n = len(ordered)
    # The number of values below the true median is binomial (n, 1/2).
    below, tail = 0, 0.0
    while True:
        tail += math.comb(n, below) / 2**n
        if 2 * tail > 1 - confidence or below >= (n - 1) // 2:
            break
        below += 1
    low = max(below - 1, 0)
    return statistics.median(ordered), ordered[low], ordered[n - 1 - low]


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP over HTTP and counts its bytes."""
    taken = 0
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Collector.taken += len(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(arguments, name, folder, more):
    line = [arguments.tandem, "serve", "--model", arguments.model, "--npu", arguments.npu, "--http", "off",
            "--port", "0", "--runtime-dir", os.path.join(folder, name)] + more
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    for said in process.stderr:
        if said.startswith("ready:"):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process
    sys.exit(f"{name}: the cluster did not start: exit status {process.wait()}")


def decode_rate(arguments, name, folder):
    line = [arguments.tandem, "bench", "--address", f"unix:{os.path.join(folder, name)}/gateway.sock", "--json",
            "--prompt", "0", "--tokens", str(arguments.tokens), "--batch", str(arguments.batch),
            "--repetitions", "1", "--no-warm-up"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)["tests"][0]["tokens_per_second"]


def processor_seconds(cluster):
    """Of a cluster's processes until now."""
    ticks = 0
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(entry)}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except (ValueError, OSError):
            continue  # no process, or one that has ended
        if int(entry) == cluster.pid or int(fields[1]) == cluster.pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def scrape(arguments, stop, counts):
    while not stop.wait(1.0):
        for service, offset in PAGES.items():
            address = f"http://127.0.0.1:{arguments.metrics_port + offset}/metrics"
            with urllib.request.urlopen(address, timeout=10) as page:
                counts[service] = len(page.read())


def measure(arguments, folder):
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}/v1/traces"
    stop, pages, clusters, pairs = threading.Event(), {}, [], []
    try:
        clusters.append(serve(arguments, "off", folder, ["--otlp", "off", "--trace-keep", "0"]))
        clusters.append(serve(arguments, "on", folder, ["--metrics", "--metrics-port", str(arguments.metrics_port),
                                                           "--otlp", endpoint, "--trace-sample", "1"]))
        scraper = threading.Thread(target=scrape, args=(arguments, stop, pages))
        scraper.start()
        for name in ("off", "on"):
            decode_rate(arguments, name, folder)  # warms up
        before = [processor_seconds(cluster) for cluster in clusters]
        until = time.monotonic() + arguments.seconds
        while time.monotonic() < until:
            rates = {}
            for name in ("off", "on") if len(pairs) % 2 == 0 else ("on", "off"):
                rates[name] = decode_rate(arguments, name, folder)
            pairs.append(rates)
        time.sleep(1.5)  # for spans that are not exported yet
        used = [processor_seconds(cluster) - start for cluster, start in zip(clusters, before)]
    finally:
        stop.set()
        for cluster in clusters:
            cluster.terminate()
        for cluster in clusters:
            cluster.wait()
    if len(pages) < len(PAGES) or Collector.taken == 0:
        sys.exit(f"not everything was on: pages {sorted(pages)}, {Collector.taken} bytes of spans")
    return pairs, used, Collector.taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True, help="the program, its services beside it")
    parser.add_argument("--model", required=True)
    parser.add_argument("--npu", default="off")
    parser.add_argument("--tokens", type=int, default=48, help="decoded by each sequence in one measurement")
    parser.add_argument("--batch", type=int, default=1, help="sequences at a time")
    parser.add_argument("--seconds", type=float, default=40, help="of measuring, clusters' starts aside")
    parser.add_argument("--metrics-port", type=int, default=19464, help="the first of five free ports")
    arguments = parser.parse_args()
    for port in (arguments.metrics_port + offset for offset in PAGES.values()):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                sys.exit(f"port {port} is in use: another cluster has its pages there")
    with tempfile.TemporaryDirectory(prefix="tandem-cost-") as folder:
        pairs, used, span_bytes = measure(arguments, folder)
    median, low, high = median_interval([pair["on"] / pair["off"] for pair in pairs])
    for name in ("off", "on"):
        rates = [pair[name] for pair in pairs]
        print(f"{name:>4}: median {statistics.median(rates):.1f} tokens/s over {len(rates)} runs")
    print(f"cost: {100 * (1 - median):.2f}% of decode throughput "
          f"(95%: {100 * (1 - high):.2f}% to {100 * (1 - low):.2f}%), {len(pairs)} pairs, "
          f"{span_bytes} bytes of spans")
    tokens = len(pairs) * arguments.tokens * arguments.batch
    off, on = (1000 * seconds / tokens for seconds in used)
    print(f"processors: {off:.3f} ms a token off, {on:.3f} ms on: {100 * (on / off - 1):+.2f}%")


if __name__ == "__main__":
    main()
