"""Attacks on the HTTP port and the page of metrics.

Each makes what it sends and returns the attack: a function of what to call once it is under way.
"""

import http.client
import itertools
import json
import threading
import time

import wire
from services import MODEL


def in_parallel(count, work):
    """`count` threads that do work(index) again and again, whatever comes of it."""

    def go_on(index):
        while True:
            try:
                work(index)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)

    for index in range(count):
        threading.Thread(target=go_on, args=(index,), daemon=True).start()


def post(options, path, body, patience=5.0):
    """The status of one POST on a connection of its own; the client leaves after `patience` seconds."""
    connection = http.client.HTTPConnection(options.http, timeout=patience)
    headers = {"Content-Type": "application/json"}
    if options.key:
        headers["Authorization"] = f"Bearer {options.key}"
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def bodies(options, variants):
    """Four clients send the bodies to their paths in turn and wait for answers."""
    turns = itertools.cycle([(path, body.encode()) for path, body in variants])
    lock = threading.Lock()

    def attack(started):
        def ask(_):
            with lock:
                path, body = next(turns)
            started()
            post(options, path, body)

        in_parallel(4, ask)

    return attack


def json_keys(options):
    """Bodies of 100,000 and a million keys, to every API."""
    def body(count):
        return "{" + ",".join(f'"k{i}":0' for i in range(count)) + "}"
    return bodies(options, [("/v1/chat/completions", body(100_000)), ("/api/generate", body(100_000)),
                            ("/v1/completions", body(1_000_000)), ("/tandem/v1/generate", body(100_000))])


def json_bias(options):
    """A logit_bias of 262,144 entries, to every API that takes one."""
    bias = {str(i): 1 for i in range(262_144)}
    openai = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 1, "logit_bias": bias})
    ours = json.dumps({"text": "a", "limits": {"maxTokens": 1}, "sampling": {"logitBias": bias}})
    return bodies(options, [("/v1/completions", openai), ("/tandem/v1/generate", ours)])


def json_values(options):
    """Bodies of 16 MB that are millions of small values: memory for each, and depth."""
    numbers = "[" + "0," * 8_000_000 + "0]"
    objects = "[" + "{}," * 5_000_000 + "{}]"
    deep = "[" * 100_000 + "]" * 100_000
    return bodies(options, [("/v1/completions", f'{{"model": "{MODEL}", "max_tokens": 1, "prompt": {numbers}}}'),
                            ("/v1/chat/completions", f'{{"model": "{MODEL}", "messages": {objects}}}'),
                            ("/tandem/v1/tokenize", f'{{"text": {deep}}}'),
                            ("/tandem/v1/detokenize", f'{{"ids": {numbers}}}')])


def connections(options):
    """1,100 connections to the HTTP port that have sent one byte; those that are closed are made again."""
    return lambda started: hold(options.http, b"G", 1100, started)


def hold(target, first_bytes, count, started):
    """Holds `count` connections that have sent `first_bytes`; makes each that is closed again, a few at a time."""
    held = []

    def fill():
        while True:
            for _ in range(max(0, min(100, count - len(held)))):
                try:
                    connection = wire.connect(target, 1)
                    connection.sendall(first_bytes)
                    connection.setblocking(False)
                    held.append(connection)
                except OSError:
                    break
            else:
                if len(held) >= count:
                    started()
            for connection in list(held):
                try:
                    if connection.recv(4096) == b"":
                        raise ConnectionError
                except BlockingIOError:
                    pass
                except OSError:
                    connection.close()
                    held.remove(connection)
            time.sleep(0.05)

    threading.Thread(target=fill, daemon=True).start()
    # Where fewer are let in, that is the attack.
    threading.Timer(2, started).start()


def trace_echo(options):
    """GET /tandem/v1/trace with an id of 8,000 characters that a header would have to escape."""
    # U+FFFF is three bytes, which gRPC's percent encoding makes nine.
    queries = ["x" * 8000, "%EF%BF%BF" * 800, "%25" * 2600, "x" * 7000]

    def attack(started):
        def ask(index):
            connection = http.client.HTTPConnection(options.http, timeout=5)
            headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
            for turn in itertools.count(index):
                connection.request("GET", f"/tandem/v1/trace?id={queries[turn % len(queries)]}", headers=headers)
                connection.getresponse().read()
                started()

        in_parallel(8, ask)

    return attack


def tokenize(options):
    """Tokenize of 16 MB over HTTP, which asks for the pieces too."""
    text = "a b" * 5_500_000
    return bodies(options, [("/tokenize", json.dumps({"content": text, "with_pieces": True})),
                            ("/tandem/v1/tokenize", json.dumps({"text": text}))])


def slow_bodies(options):
    """16 POSTs with bodies of 16 MB that come but for their last two bytes, and those half a minute apart."""
    size = 16 << 20
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"{f'Authorization: Bearer {options.key}' if options.key else 'X-Nothing: 0'}\r\n"
            f"Content-Length: {size}\r\n\r\n").encode()
    most = b'{"model": "' + b"x" * (size - 13)

    def drip(_):
        connection = wire.connect(options.http, 5)
        try:
            connection.sendall(head)
            connection.sendall(most)
            connection.settimeout(30)
            if connection.recv(1) == b"":
                raise ConnectionError("closed")
            connection.sendall(b"x")
        finally:
            connection.close()

    def attack(started):
        in_parallel(16, drip)
        threading.Timer(2, started).start()

    return attack


def metrics_idle(options):
    """Sixteen connections to the metrics page that say nothing; those that are closed are made again."""
    return lambda started: hold(options.metrics, b"", 16, started)


def many_answers(options):
    """One key's, or one client's, requests for 128 answers of 400 tokens each, one after the other."""
    body = json.dumps({"model": MODEL, "prompt": "The capital of", "n": 128, "max_tokens": 400, "ignore_eos": True})

    def attack(started):
        in_parallel(1, lambda _: post(options, "/v1/completions", body, 120))
        threading.Timer(0.5, started).start()

    return attack


def token_burst(options):
    """16 requests of 400 tokens at once under a key, again and again."""
    body = json.dumps({"model": MODEL, "prompt": "The capital of", "max_tokens": 400, "ignore_eos": True})

    def ask(_):
        post(options, "/v1/completions", body, 120)
        time.sleep(0.05)  # a refusal comes at once

    def attack(started):
        in_parallel(16, ask)
        threading.Timer(0.5, started).start()

    return attack


ATTACKS = {
    "json-keys": json_keys, "json-bias": json_bias, "json-values": json_values, "connections-http": connections,
    "trace-echo": trace_echo, "tokenize-http": tokenize, "slow-bodies": slow_bodies, "metrics-idle": metrics_idle,
    "many-answers": many_answers, "token-burst": token_burst,
}
