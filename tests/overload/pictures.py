"""Pictures made to be many, large or slow, and clients that send them."""

import base64
import http.client
import json
import os
import random
import struct
import threading
import time
import zlib

import wire

MODEL = "demo2.Q8_0.gguf"


def png(width, height, pixels=None):
    """A PNG of RGB: noise, or all `pixels`, three bytes; equal ones differ in a text chunk."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    if pixels is None:
        rows = b"".join(b"\0" + random.randbytes(3 * width) for _ in range(height))
        packed = zlib.compress(rows, 0)
    else:
        press = zlib.compressobj(1)
        row = b"\0" + pixels * width
        packed = b"".join(press.compress(row) for _ in range(height)) + press.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + \
        chunk(b"tEXt", b"Comment\0" + os.urandom(16).hex().encode()) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def renewed(picture):
    """The same pixels in another file, so that no cache has it."""
    at = picture.index(b"tEXt")
    data = b"Comment\0" + os.urandom(16).hex().encode()
    end = at + 4 + len(data)
    return picture[:at + 4] + data + struct.pack(">I", zlib.crc32(b"tEXt" + data)) + picture[end + 4:]


def chat(turns, max_tokens=4, **more):
    """The body of a chat; turns: of the user, (pictures, text)."""
    messages = [{"role": "user", "content": [
        *({"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(file).decode()}}
          for file in files), {"type": "text", "text": text}]} for files, text in turns]
    return json.dumps({"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": max_tokens, **more}).encode()


class Reply:
    def __init__(self, status, body):
        self.status, self.body = status, body

    @property
    def json(self):
        return json.loads(self.body)

    def __str__(self):
        return f"{self.status}: {self.body[:200]!r}"


def post(address, body, patience=180):
    """The reply to a chat on a connection of its own."""
    connection = http.client.HTTPConnection(address, timeout=patience)
    try:
        try:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the body was complete: the reply says why
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    finally:
        connection.close()


class Threads:
    """work(number) again and again in threads of their own, until end(), which raises what the first of them raised."""

    def __init__(self, count, work):
        self.over, self.error = threading.Event(), None
        self.threads = [threading.Thread(target=self.run, args=(work, i), daemon=True) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, work, number):
        try:
            while not self.over.is_set():
                work(number)
        except BaseException as error:
            self.error = self.error or error
            self.over.set()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.error:
            raise self.error


class Streams:
    """Clients that stream texts: each answer must be the whole one that came before the attack."""

    PROMPTS = ("What is the capital of Japan?", "Tell me a story.")

    def __init__(self, address):
        self.address, self.whole = address, 0
        self.expected = [self.stream(prompt) for prompt in self.PROMPTS]
        self.threads = None

    def stream(self, prompt):
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": prompt}], "temperature": 0,
                           "max_tokens": 40, "ignore_eos": True, "stream": True})
        connection = http.client.HTTPConnection(self.address, timeout=180)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise AssertionError(f"a stream of text was refused: {answer.status}: {answer.read()[:200]!r}")
            lines = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
        finally:
            connection.close()
        if not lines or lines.pop() != b"[DONE]":
            raise AssertionError("a stream of text was cut off")
        return "".join(choice["delta"].get("content") or "" for line in lines for choice in json.loads(line)["choices"])

    def ask(self, number):
        text = self.stream(self.PROMPTS[number])
        if text != self.expected[number]:
            raise AssertionError(f"a stream of text changed: {text!r}, was {self.expected[number]!r}")
        self.whole += 1

    def begin(self):
        self.whole = 0
        self.threads = Threads(len(self.PROMPTS), self.ask)

    def end(self):
        self.threads.end()
        if self.whole == 0:
            raise AssertionError("no stream of text came to its end beside the attack")


class SlowUpload:
    """A chat's body that comes slowly: "drips" a byte at a time, "stalls" before its end, or is "cut" off there."""

    def __init__(self, address, body, how):
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        self.connection, self.how, self.at = wire.connect(address, 10), how, len(body) - 2
        self.rest = body[self.at:]
        if how == "drips":
            self.at, self.rest = 1000, body[1000:]
        self.connection.sendall(head + body[:self.at])

    def go_on(self):
        """Another byte; ConnectionError: the server has ended it."""
        if self.how == "cut":
            self.connection.close()
            raise ConnectionError("cut off")
        if self.how == "drips":
            self.connection.sendall(self.rest[:1])
            self.rest = self.rest[1:]
        self.connection.setblocking(False)
        try:
            if self.connection.recv(4096):
                raise ConnectionError("answered")  # 408 or 413
            raise ConnectionError("closed")
        except BlockingIOError:
            self.connection.settimeout(10)

    def close(self):
        self.connection.close()


def upload_slowly(address, make, hows, pause=0.02, seconds=2.0):
    """One upload after the other, each for at most `seconds`."""
    def work(number):
        try:
            upload = SlowUpload(address, make(), hows[number % len(hows)])
        except OSError:
            time.sleep(pause)
            return
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                upload.go_on()
                time.sleep(pause)
        except OSError:
            time.sleep(pause)
        finally:
            upload.close()
    return work
