"""Sixteen clients of every API that ask for the same answers again and again, and compare."""

import collections
import http.client
import json
import random
import threading
import time

import wire
from services import MODEL

PATIENCE_S = 120  # a hang is a failure, not a wait
PROMPTS = ("The capital of", "What is the capital", "Once upon a time", "List three", "The sum of 2 and")


class Cut(Exception):
    """The connection ended before the answer did, or could not be made."""


class Refused(Exception):
    """The server ended the answer with an error."""


class Client:
    """One client: its API, its prompt and its length are its own, the seed too where it samples."""

    def __init__(self, services, number):
        self.services, self.number = services, number
        self.prompt = PROMPTS[number % len(PROMPTS)]
        self.tokens = 24 + 7 * (number % 9)
        self.seed = number if number % 3 == 0 else None
        self.kind, self.ask_by = self.APIS[number % len(self.APIS)]
        self.name = f"{self.kind} {number}"
        self.text = ""

    def ask(self):
        """The answer's text; Cut or Refused with what had come in `self.text`."""
        self.text = ""
        try:
            return self.ask_by(self)
        except (OSError, http.client.HTTPException) as error:
            raise Cut(f"{type(error).__name__}: {error}") from error

    def grpc(self):
        # Debian 12's gRPC gives GOAWAY its own text; every call has a connection of its own.
        request = wire.generate_request(self.prompt, self.tokens, self.seed)
        connection = wire.GrpcConnection(self.services.unix if self.number % 2 else self.services.grpc, PATIENCE_S)
        try:
            connection.send("Generate", wire.message(request))
            for message in connection.messages():
                for number, value in wire.fields(message):
                    if number == 1:
                        self.text += value.decode()
            if connection.status != "0":
                raise Refused(f"grpc-status {connection.status}: {connection.trailers!r}")
            return self.text
        finally:
            connection.close()

    def lines(self, path, body):
        connection = http.client.HTTPConnection(self.services.http, timeout=PATIENCE_S)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(f"{answer.status}: {answer.read()[:300]!r}")
            for line in answer:
                line = line.strip().removeprefix(b"data: ")
                if line == b"[DONE]" or line.startswith((b":", b"event:")) or not line:
                    continue
                message = json.loads(line)
                if "error" in message:
                    raise Refused(json.dumps(message["error"]))
                yield message
        finally:
            connection.close()

    def sampling(self, **more):
        return {"temperature": 0, **more} if self.seed is None else {"temperature": 1, "seed": self.seed, **more}

    def openai(self, stream):
        body = {"model": MODEL, "prompt": self.prompt, "max_tokens": self.tokens, "stream": stream,
                "ignore_eos": True, **self.sampling()}
        ended = False
        for message in self.lines("/v1/completions", body):
            for choice in message["choices"]:
                self.text += choice["text"]
                ended = ended or bool(choice.get("finish_reason"))
        return self.whole(ended)

    def chat(self):
        body = {"model": MODEL, "messages": [{"role": "user", "content": self.prompt}], "max_tokens": self.tokens,
                "stream": True, **self.sampling()}
        ended = False
        for message in self.lines("/v1/chat/completions", body):
            for choice in message["choices"]:
                self.text += choice["delta"].get("content") or ""
                ended = ended or bool(choice.get("finish_reason"))
        return self.whole(ended)

    def ollama(self):
        body = {"model": MODEL, "prompt": self.prompt, "raw": True,
                "options": self.sampling(num_predict=self.tokens)}
        ended = False
        for message in self.lines("/api/generate", body):
            self.text += message.get("response", "")
            ended = ended or message["done"]
        return self.whole(ended)

    def rest(self):
        body = {"text": self.prompt, "sampling": self.sampling(),
                "limits": {"maxTokens": self.tokens, "ignoreEos": True}}
        ended = False
        for message in self.lines("/tandem/v1/generate", body):
            self.text += message.get("text", "")
            ended = ended or "finishReason" in message
        return self.whole(ended)

    def whole(self, ended):
        if not ended:
            raise Cut("the answer has no end")
        return self.text

    APIS = (("grpc", grpc), ("openai", lambda self: self.openai(True)), ("chat", chat), ("ollama", ollama),
            ("rest", rest), ("openai, whole", lambda self: self.openai(False)))


class Streams:
    """`count` clients, each asking without a pause from start() to end(); what they saw is judged at once.

    `expected` are the clients' texts in a cluster without faults, such as `expected` of earlier streams; without it they are asked
    for here.  A text that differs from the expected one, or a stream that ends without a policy that names that, is in
    `failures`.  `ended` counts streams by the policy that ended them.
    """

    def __init__(self, services, expected=None, count=16):
        self.clients = [Client(services, number) for number in range(count)]
        # A few answers in any case, for which the services open what they keep open.
        first = [client.ask() for client in (self.clients[:4] if expected else self.clients)]
        self.expected = expected or first
        self.failures = [f"{client.name}: {text!r} before the first fault, expected {right!r}"
                         for client, text, right in zip(self.clients, first, self.expected) if text != right]
        self.ended = collections.Counter()
        self.answered = [0] * count
        self.lock = threading.Lock()
        self.gateway_gone = threading.Event()
        self.gateway_ends = 0  # grows when the gateway is killed
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.go_on, args=(client, text), daemon=True)
                        for client, text in zip(self.clients, self.expected)]

    def start(self):
        for thread in self.threads:
            thread.start()

    @property
    def answers(self):
        return sum(self.answered)

    def go_on(self, client, expected):
        while not self.stopping.is_set():
            ends, gone = self.gateway_ends, self.gateway_gone.is_set()
            try:
                text = client.ask()
                with self.lock:
                    self.answered[client.number] += 1
                    if text != expected:
                        self.failures.append(f"{client.name}: {text!r}, expected {expected!r}")
            except (Cut, Refused) as error:
                policy = self.policy(error, gone or self.gateway_gone.is_set() or ends != self.gateway_ends)
                with self.lock:
                    if policy:
                        self.ended[policy] += 1
                    else:
                        self.failures.append(f"{client.name}: ended by {type(error).__name__} {error} after {client.text!r}")
                    if not expected.startswith(client.text):
                        self.failures.append(f"{client.name}: {client.text!r} is no prefix of {expected!r}")
                time.sleep(random.uniform(0.01, 0.05))
            except Exception as error:  # a client that stops for a reason of its own would hide what follows
                with self.lock:
                    self.failures.append(f"{client.name}: {type(error).__name__}: {error}")
                return

    @staticmethod
    def policy(error, gateway_ended):
        """The policy by which a stream may end, as README.md has them; empty: it must not."""
        if "a worker was lost 3 times in a row while computing this request" in str(error):
            return "three losses in a row"
        if gateway_ended and isinstance(error, Cut):
            return "the gateway died"
        # Until the new gateway has loaded its plan.
        if gateway_ended and ("503" in str(error) or "grpc-status 14" in str(error)):
            return "the gateway was starting"
        return ""

    def kill_gateway(self, services):
        self.gateway_gone.set()
        services.kill("gateway")
        services.start("gateway")
        services.wait_until_ready()
        self.gateway_ends += 1
        self.gateway_gone.clear()

    def end(self):
        """After the last fault every client gets one more whole answer, and those under way end."""
        before, end = list(self.answered), time.monotonic() + PATIENCE_S
        while not self.failures and any(now == was for now, was in zip(self.answered, before)):
            if time.monotonic() > end:
                missing = [client.name for client, now, was in zip(self.clients, self.answered, before) if now == was]
                self.failures.append(f"no answer in the {PATIENCE_S} s after the last fault: {', '.join(missing)}")
            time.sleep(0.01)
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE_S + 10)
            if thread.is_alive():
                self.failures.append(f"a client still waits after {PATIENCE_S} s")
