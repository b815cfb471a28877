#!/usr/bin/env python3
"""Attacks a gateway with pictures, while other clients stream texts: pictures_test.py PROGRAMS [--long]

Too many pictures, uploads that are slow or cut off, large pictures of many clients at once, decoders that are killed.
README.md lists the failures.  Ends with a table; exit status 1: a failure.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import pictures
import toy_encoder
from pictures import chat, png, post, renewed
from services import SOURCE, Services, Usage, Watch

MOST = 64  # pictures of a message
MIB = 1 << 20
# What the gateway bounds (docs/threat-model.md): it may hold so much beyond what it held before, at any moment.
BOUNDS = {
    "bodies that arrive or wait": 128 * MIB,
    "files of pictures that wait": 256 * MIB,
    "pixels of two pictures": 2 * 3 * (32 * MIB),
}
PATIENCE_S = 60  # until the gateway must be as before
REFUSALS = {413, 429, 503}  # too much, for now


class Failure(AssertionError):
    """What must hold does not."""


def expect(held, what):
    if not held:
        raise Failure(what)


class Bench:
    """A gateway that sees, and what it holds while it is attacked."""

    def __init__(self, options, folder):
        self.options = options
        encoder = pathlib.Path(folder) / "encoder.gguf"
        toy_encoder.write(encoder)
        self.services = Services(options.programs, model=SOURCE / "models/demo2" / pictures.MODEL, context=1024,
                                 encoder=encoder)
        self.address, self.pid = self.services.http, self.services.gateway.pid
        self.seconds = options.seconds
        self.statuses = collections.Counter()
        self.small = png(20, 20)
        self.question = chat([([self.small], "What is it?")], 12)
        reply = post(self.address, self.question)
        expect(reply.status == 200, f"a picture before the attacks: {reply}")
        self.answer = reply.json["choices"][0]["message"]["content"]

    def count(self, outcome):
        """Of pictures, by the gateway's metrics."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as page:
            return int(float(re.search(rf'^tandem_pictures_total{{outcome="{outcome}"}} (\S+)$', page.read().decode(), re.M)[1]))

    def decoders(self):
        """Processes of tandem-image-decoder, the gateway's children."""
        found = []
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
        return found

    def ask(self, body):
        """Counts the reply; fails if it is neither an answer nor a refusal with a text."""
        reply = post(self.address, body)
        self.statuses[reply.status] += 1
        if reply.status != 200:
            why = reply.json["error"]["message"]
            expect(reply.status in REFUSALS and why, f"a picture: {reply}")
            time.sleep(0.05)
        return reply

    def sees(self):
        """Fails unless the first picture, in a file that no cache has, gets its first answer."""
        body = chat([([renewed(self.small)], "What is it?")], 12)
        reply = post(self.address, body)
        expect(reply.status == 200, f"a small picture: {reply}")
        expect(reply.json["choices"][0]["message"]["content"] == self.answer, f"another answer: {reply}")


def fresh(count):
    return [png(9, 9, random.randbytes(3)) for _ in range(count)]


def many(bench):
    """64 pictures in a request, one more, more than the context holds, one of them broken; again and again."""
    reply = post(bench.address, chat([(fresh(MOST), "Count them.")]))
    expect(reply.status == 200, f"{MOST} pictures: {reply}")
    expect(reply.json["usage"]["prompt_tokens_details"]["image_tokens"] == MOST * toy_encoder.TOKENS, str(reply))
    encoded = bench.count("encoded")
    for turns, says in (([(fresh(MOST + 1), "Count them.")], f"at most {MOST} images"),
                        ([(fresh(MOST), "Count them.")] * 8, "context")):
        reply = post(bench.address, chat(turns))
        expect(reply.status == 400 and says in reply.json["error"]["message"], f"too many pictures: {reply}")
    expect(bench.count("encoded") == encoded, "requests that are too long are refused before their pictures are decoded")
    broken = fresh(MOST - 1) + [b"\x89PNG\r\n\x1a\n"]
    reply = post(bench.address, chat([(broken, "Count them.")]))
    expect(reply.status == 400 and f"images[{MOST - 1}]: " in reply.json["error"]["message"], f"a broken picture: {reply}")
    crowd = pictures.Threads(2, lambda _: bench.ask(chat([(fresh(MOST), "Count them.")])))
    time.sleep(bench.seconds)
    crowd.end()


def slow(bench):
    """Uploads of pictures that drip, stall before their end, or are cut off there: 4 MB each, of 24 clients."""
    large = png(1100, 1100)
    body = chat([([large], "What is it?")])
    encoded, refused = bench.count("encoded"), bench.count("refused")
    crowd = pictures.Threads(24, pictures.upload_slowly(bench.address, lambda: body, ("drips", "stalls", "cut")))
    end, asked = time.monotonic() + bench.seconds, 0
    while time.monotonic() < end:
        bench.sees()  # in time, and with its right answer
        asked += 1
        time.sleep(0.1)
    crowd.end()
    expect(bench.count("encoded") == encoded + asked, "what has not come whole is not decoded")
    expect(bench.count("refused") == refused, "what has not come whole is not decoded")


def large(bench, clients=24):
    """Files of 9 MB, and pictures of 16 million pixels (with --long: 33 million), of 24 clients at once, each a new one."""
    side = 5792 if bench.options.long else 4096
    noise, blank = png(1750, 1750), png(side, side, b"\x40\x80\xc0")
    made = (noise, blank)
    crowd = pictures.Threads(clients, lambda number: bench.ask(chat([([renewed(made[number % 2])], "What is it?")])))
    time.sleep(bench.seconds)
    crowd.end()
    expect(bench.statuses[200] > 0, f"no picture was answered: {dict(bench.statuses)}")


def killed(bench):
    """Decoders that are killed every 50 ms, while 8 clients send pictures of 9 million pixels."""
    blank = png(3000, 3000, b"\x10\x20\x30")
    crowd = pictures.Threads(8, lambda _: bench.ask(chat([([renewed(blank)], "What is it?")])))
    end, num_killed = time.monotonic() + bench.seconds, 0
    while time.monotonic() < end:
        for pid in bench.decoders():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                num_killed += 1
        time.sleep(0.05)
    crowd.end()
    expect(num_killed > 10, f"only {num_killed} decoders were there to be killed")


ATTACKS = (many, slow, large, killed)


def recovered(bench, before):
    """What has not come back to its value before yet; empty: all has."""
    left, now = [], Usage(bench.pid)
    for name, slack in (("descriptors", 4), ("threads", 8), ("resident", before.resident // 10 + 16 * MIB)):
        value, was = getattr(now, name), getattr(before, name)
        if value > was + slack:
            left.append(f"{name}: {value}, {was} before")
    if len(bench.decoders()) != 2:
        left.append(f"{len(bench.decoders())} decoders wait, 2 before")
    return left


def run(bench, attack, streams, before, most):
    """One attack: its row of the table, and its failures."""
    failures, began = [], time.monotonic()

    def check(what):
        try:
            what()
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
            if not isinstance(error, AssertionError):
                traceback.print_exc()

    bench.statuses.clear()
    watch = Watch(bench.pid, most, lambda: None)
    streams.begin()
    check(lambda: attack(bench))
    check(streams.end)
    watch.end()
    if bench.services.gateway.poll() is not None:
        return [*failures, f"the gateway ended: {bench.services.log()[-500:]}"]
    ended = time.monotonic()
    while left := recovered(bench, before):
        if time.monotonic() > ended + PATIENCE_S:
            failures += [f"after {PATIENCE_S} s: {what}" for what in left]
            break
        time.sleep(0.25)
    back = time.monotonic() - ended
    check(bench.sees)
    if watch.peak > most:
        failures.append(f"memory: {watch.peak // MIB} MiB, bound {most // MIB} MiB")
    print(f"{attack.__name__:8} {before.resident // MIB:7} {watch.peak // MIB:7} {most // MIB:7} {watch.descriptors:12} "
          f"{watch.threads:8} {streams.whole:8} {ended - began:6.1f} {back:6.1f}  "
          f"{' '.join(f'{status}:{count}' for status, count in sorted(bench.statuses.items())) or '-':24} "
          f"{'FAILED' if failures else 'ok'}", flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path,
                        help="folder of tandem-gateway, tandem-image-decoder, tandem-loader, reference_worker")
    parser.add_argument("--long", action="store_true", help="two minutes an attack instead of four seconds")
    parser.add_argument("--only", nargs="+", choices=[attack.__name__ for attack in ATTACKS])
    options = parser.parse_args()
    options.seconds = 120 if options.long else 4
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    failures = []
    with tempfile.TemporaryDirectory(prefix="tandem-pictures-") as folder:
        bench = Bench(options, folder)
        try:
            streams = pictures.Streams(bench.address)
            before = Usage(bench.pid)
            most = before.resident + sum(BOUNDS.values())
            print(f"bound: {before.resident // MIB} MiB before, and " +
                  ", ".join(f"{size // MIB} MiB of {what}" for what, size in BOUNDS.items()))
            print(f"{'attack':8} {'MiB b':>7} {'peak':>7} {'bound':>7} {'descriptors':>12} {'threads':>8} {'streams':>8} "
                  f"{'s':>6} {'back':>6}  statuses")
            for attack in ATTACKS:
                if not options.only or attack.__name__ in options.only:
                    failures += [f"{attack.__name__}: {what}" for what in run(bench, attack, streams, before, most)]
        finally:
            lives = bench.services.gateway.poll() is None
            status = bench.services.end(20)
            if lives and status != 0:
                failures.append(f"after SIGTERM: status {status}")
    for failure in failures:
        print(f"  {failure}")
    print("passed" if not failures else f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
