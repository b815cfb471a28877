"""HTTP/2 frames, gRPC messages and protobuf fields, written by hand: attacks need frames that no library sends."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CANCEL = 8
MAX_FRAME = 16384


def connect(target, timeout=10):
    """A socket to HOST:PORT or unix:PATH."""
    if target.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout)
        connection.connect(target[len("unix:"):])
        return connection
    host, port = target.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values):
    """SETTINGS of this end, by name."""
    ids = {"header_table_size": 1, "initial_window_size": 4, "max_frame_size": 5}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", ids[name], value) for name, value in values.items()))


def hpack_length(length):
    """HPACK's integer of seven bits, without the Huffman flag."""
    if length < 127:
        return bytes([length])
    rest, out = length - 127, bytearray([127])
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    out.append(rest)
    return bytes(out)


def header(name, value):
    """A header field with a new name, not indexed."""
    name, value = name.encode(), value.encode()
    return b"\0" + hpack_length(len(name)) + name + hpack_length(len(value)) + value


def call_headers(method):
    """The header block of a call of tandem.v1.Generation.METHOD."""
    # 0x83: ":method: POST"; 0x86: ":scheme: http".
    return b"\x83\x86" + header(":path", f"/tandem.v1.Generation/{method}") + header(":authority", "localhost") + \
        header("content-type", "application/grpc") + header("te", "trailers")


def message(payload):
    """A gRPC message, not compressed."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def field(number, value):
    """A protobuf field: of an int as a varint, of a float as four bytes, of str or bytes by length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """(number, value) of each field of a message: ints, and bytes of all that has a length or is fixed."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(kind) or number()
        yield tag >> 3, message[at:at + size]
        at += size


def generate_request(prompt, num_tokens, seed=None):
    """A GenerateRequest of `num_tokens`, whatever they are: greedy, or sampled with a seed."""
    sampling = field(1, 0.0) if seed is None else field(1, 1.0) + field(8, seed)
    return field(2, prompt) + field(4, sampling) + field(5, field(1, num_tokens) + field(3, 1))


def tokenize_request(text):
    return field(2, text)


class Frames:
    """Reads the frames of a connection."""

    def __init__(self, connection):
        self.connection = connection
        self.buffer = bytearray()

    def read(self):
        """(kind, flags, stream, payload); ConnectionError when the other end has closed."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + self.length():
            more = self.connection.recv(1 << 16)
            if not more:
                raise ConnectionError("closed")
            self.buffer += more
        length = self.length()
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload = bytes(self.buffer[9:9 + length])
        del self.buffer[:9 + length]
        return kind, flags, stream & 0x7FFFFFFF, payload

    def length(self):
        return int.from_bytes(self.buffer[:3], "big")


class GrpcConnection:
    """One connection, one call at a time, as well-behaved clients do it; ConnectionError when a call fails."""

    def __init__(self, target, timeout):
        self.connection = connect(target, timeout)
        self.frames = Frames(self.connection)
        # No table: the names of trailers come as they are.
        self.connection.sendall(PREFACE + settings(header_table_size=0, initial_window_size=1 << 20) +
                                frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
        self.stream = -1
        # What may be sent: on the connection, on a new stream, on the call's stream.
        self.connection_window = self.initial_window = 65535
        self.window = 0
        self.status, self.trailers = "", b""

    def send(self, method, data, finish=True):
        """A call with `data` for its body, as fast as the windows let it through; it goes on if not `finish`."""
        self.stream += 2
        self.window = self.initial_window
        self.connection.sendall(frame(HEADERS, END_HEADERS, self.stream, call_headers(method)))
        at = 0
        while at < len(data):
            size = min(MAX_FRAME, len(data) - at, self.window, self.connection_window)
            if size <= 0:
                kind, flags, _ = self.read()
                if kind == HEADERS and flags & END_STREAM:
                    raise ConnectionError("an answer before the request's end")
                continue
            end = END_STREAM if finish and at + size == len(data) else 0
            self.connection.sendall(frame(DATA, end, self.stream, data[at:at + size]))
            self.window -= size
            self.connection_window -= size
            at += size

    def read(self):
        """(kind, flags, payload) of the call's next frame; answers those of the connection."""
        while True:
            kind, flags, stream, payload = self.frames.read()
            if kind == SETTINGS and not flags & ACK:
                for at in range(0, len(payload), 6):
                    name, value = struct.unpack(">HI", payload[at:at + 6])
                    if name == 4:
                        self.window += value - self.initial_window
                        self.initial_window = value
                self.connection.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.connection.sendall(frame(PING, ACK, 0, payload))
            elif kind == WINDOW_UPDATE and stream == 0:
                self.connection_window += int.from_bytes(payload, "big")
            elif kind == WINDOW_UPDATE and stream == self.stream:
                self.window += int.from_bytes(payload, "big")
            elif kind == GOAWAY:
                raise ConnectionError(f"GOAWAY: {payload[8:]!r}")
            elif kind == RST_STREAM and stream == self.stream:
                raise ConnectionError(f"the stream was reset: {payload.hex()}")
            if stream == self.stream or (kind == WINDOW_UPDATE and stream == 0):
                return kind, flags, payload

    def messages(self):
        """The call's answers, each as it comes; then `status` is its gRPC status, as text."""
        buffer = b""
        while True:
            kind, flags, payload = self.read()
            if kind == DATA:
                buffer += payload
                while len(buffer) >= 5 and len(buffer) >= 5 + int.from_bytes(buffer[1:5], "big"):
                    end = 5 + int.from_bytes(buffer[1:5], "big")
                    yield buffer[5:end]
                    buffer = buffer[end:]
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self.trailers = payload
                name = payload.find(b"grpc-status")
                value = name + len(b"grpc-status")
                self.status = payload[value + 1:value + 1 + payload[value]].decode() if name >= 0 else ""
                return

    def answer(self):
        """The bytes of the call's answers; ConnectionError if there are none."""
        answer = b"".join(self.messages())
        if not answer:
            raise ConnectionError(f"no message: status {self.status}, {self.trailers!r}")
        return answer

    def call(self, method, request):
        self.send(method, message(request))
        return self.answer()

    def close(self):
        self.connection.close()
