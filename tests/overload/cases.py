"""Which attack meets which gateway, whose latency is measured, and the bounds."""

import math
import re
import urllib.request
from dataclasses import dataclass, field
from typing import Callable, Optional


@dataclass
class Case:
    name: str
    attack: str = ""  # the name's, if empty
    victims: tuple = ("http", "grpc")
    flags: tuple = ()
    descriptors: Optional[int] = None  # the gateway's limit
    keys: Optional[dict] = None  # limits by the key's name: "tenant" is the victim's
    unix: bool = False  # gRPC by its unix socket
    ratio: float = 3  # p99 beside the attack over p99 without
    step: bool = False  # and one step is allowed: 99 of 100 of those beside the attack are no longer
    waits: dict = field(default_factory=dict)  # and so many seconds, by the victim
    short: bool = True  # not in --long alone
    judge: Optional[Callable] = None  # failures beyond those of every case

    def __post_init__(self):
        self.attack = self.attack or self.name


class Steps:
    """Times of the engine's steps since construction, by the gateway's metrics."""

    def __init__(self, services):
        self.url = f"http://{services.http}/metrics"
        self.before = self.read()

    def read(self):
        """The counts by the bucket's bound."""
        with urllib.request.urlopen(self.url, timeout=30) as page:
            text = page.read().decode()
        return {float(bound): int(float(count)) for bound, count in
                re.findall(r'^tandem_step_seconds_bucket\{(?:[^}]*,)?le="([^"]+)"\} (\S+)$', text, re.M)}

    def longest(self, share=0.99):
        """Seconds that `share` of the steps were within; between the bounds of a bucket on a straight line."""
        now = {bound: count - self.before.get(bound, 0) for bound, count in self.read().items()}
        wanted = share * max(now.values())
        below, count_below = 0.0, 0
        for bound, count in sorted(now.items()):
            if count >= wanted:
                if math.isinf(bound) or count == count_below:
                    return below
                return below + (bound - below) * (wanted - count_below) / (count - count_below)
            below, count_below = bound, count
        return below


def tokens_within(limit):
    """A judge: the key "attacker" has not been given more tokens than `limit`."""
    def judge(services):
        with urllib.request.urlopen(f"http://{services.http}/metrics", timeout=30) as page:
            text = page.read().decode()
        given = sum(float(count) for count in re.findall(
            r'^tandem_key_tokens_total\{[^}]*key="attacker"[^}]*\} (\S+)$', text, re.M))
        return [f"tokens: {given:.0f} given, {limit} allowed"] if given > limit else []
    return judge


KEYS = {"tenant": "", "attacker": "requests=1 concurrency=1"}

CASES = [
    Case("json-keys"),
    Case("json-bias", short=False),
    Case("json-values", short=False),
    Case("connections-http-1024", "connections-http", descriptors=1024, short=False),
    Case("connections-http-256", "connections-http", descriptors=256),
    Case("connections-grpc-1024", "connections-grpc", descriptors=1024, short=False),
    Case("connections-grpc-256", "connections-grpc", descriptors=256),
    Case("trace-echo", victims=("rest", "grpc")),
    Case("tokenize-http"),
    Case("tokenize-grpc"),
    Case("rapid-reset"),
    Case("continuation"),
    Case("large-headers", short=False),
    Case("unfinished-streams", short=False),
    Case("unfinished-messages"),
    Case("unread-answers", short=False),
    Case("pings", short=False),
    Case("rapid-reset-unix", "rapid-reset", unix=True, short=False),
    Case("continuation-unix", "continuation", unix=True, short=False),
    Case("unfinished-streams-unix", "unfinished-streams", unix=True, short=False),
    Case("many-answers-key", "many-answers", keys=KEYS, victims=("http",), ratio=2, step=True),
    Case("many-answers", ratio=2, step=True, short=False),
    Case("token-burst", keys={"tenant": "", "attacker": "tokens=200"}, victims=("http",), ratio=2, step=True,
         judge=tokens_within(400)),
    Case("slow-bodies"),
    # Sixteen connections without a request hold the page for a second each.
    Case("metrics-idle", victims=("metrics", "http"), waits={"metrics": 2}),
]
