"""Clients whose latency is measured: each asks for little, and again when it has its answer."""

import concurrent.futures
import http.client
import json
import math
import time

import wire
from services import MODEL

# A request that has no answer by then has failed, and counts with this time.
DEADLINE_S = 5.0


class HttpVictim:
    """One POST after the other on a connection that is kept; connects again when it was closed."""

    def __init__(self, address, path, body, key=None):
        self.address, self.path, self.body = address, path, json.dumps(body)
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.connection = None

    def ask(self):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.address, timeout=DEADLINE_S)
        method = "POST" if self.body != "null" else "GET"
        self.connection.request(method, self.path, self.body if method == "POST" else None, self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ConnectionError(f"{answer.status}: {text[:200]!r}")
        if answer.will_close:
            self.close()

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class GrpcVictim:
    """One Generate after the other on a connection that is kept."""

    def __init__(self, target):
        self.target = target
        self.connection = None

    def ask(self):
        if self.connection is None:
            self.connection = wire.GrpcConnection(self.target, DEADLINE_S)
        self.connection.call("Generate", wire.generate_request("The capital of", 1))

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def victims(kinds, services, key=None):
    """By name: "http" and "grpc" want one token, "rest" tokenizes, "metrics" reads the page of metrics."""
    generate = {"model": MODEL, "prompt": "The capital of", "max_tokens": 1, "temperature": 0}
    made = {
        "http": lambda: HttpVictim(services.http, "/v1/completions", generate, key),
        "rest": lambda: HttpVictim(services.http, "/tandem/v1/tokenize", {"text": "The capital of"}, key),
        "metrics": lambda: HttpVictim(services.metrics, "/metrics", None),
        "grpc": lambda: GrpcVictim(services.grpc),
    }
    return {kind: made[kind]() for kind in kinds}


class Latencies:
    """Of one victim in one window, in seconds."""

    def __init__(self):
        self.samples, self.failures = [], []

    def quantile(self, share):
        ordered = sorted(self.samples)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    @property
    def p50(self):
        return self.quantile(0.5)

    @property
    def p99(self):
        return self.quantile(0.99)


def use(kinds, services, key=None, clients=16, requests=5):
    """Clients of each kind, all at once: a server in use has threads, arenas and caches that a new one has not."""
    asked = [victim for _ in range(clients) for victim in victims(kinds, services, key).values()]

    def ask(victim):
        for _ in range(requests):
            victim.ask()
        victim.close()
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        list(pool.map(ask, asked))  # raises what one raised


def measure(asked, samples, seconds):
    """Each victim in turn, until each has `samples` latencies or `seconds` are over: {kind: Latencies}.

    In turn, so that both see the same moments and this process never has two requests to look after.
    """
    latencies = {kind: Latencies() for kind in asked}
    end = time.monotonic() + seconds
    for _ in range(samples):
        for kind, victim in asked.items():
            begin = time.perf_counter()
            took = None
            # A kept connection may have been closed between two requests: one more try, as clients do.
            for attempt in range(2):
                try:
                    victim.ask()
                    break
                except (OSError, http.client.HTTPException) as error:
                    victim.close()
                    if attempt == 1 or not isinstance(error, (ConnectionResetError, BrokenPipeError,
                                                              http.client.RemoteDisconnected)):
                        latencies[kind].failures.append(f"{type(error).__name__}: {error}"[:160])
                        took = DEADLINE_S
                        break
            latencies[kind].samples.append(took or time.perf_counter() - begin)
        if time.monotonic() > end:
            break
    return latencies
