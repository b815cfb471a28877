"""A configuration of an NPU's array, tile by tile: what the designs of this folder are made of.

An Array has buffers, locks, chains of descriptors, streams between DMA channels, and cores that run a program.
It is plain data: as_mlir prints it in mlir-aie's `aie` dialect, as_json for tests, which execute it with the
cores' programs compiled for the host (../../emulator/array/recorded_design.h).  Everything that a design relies
on is placed here, so that no tool chooses it: channels, locks' numbers, addresses.

A channel's descriptors follow one another for ever: each waits for its lock, moves its data, and releases its
lock.
"""

from dataclasses import dataclass, field

SHIM_ROW, MEMORY_ROW, FIRST_CORE_ROW = 0, 1, 2
ELEMENT_BYTES = {"i8": 1, "bf16": 2, "i32": 4, "f32": 4}
ALIGNMENT = 64


@dataclass(frozen=True)
class Limits:
    """Of a kind of tile, on AIE2 and AIE2P.  A memory tile's even channels share half of its descriptors, and its
    odd channels the other half."""

    data_bytes: int
    locks: int
    inputs: int  # channels from a stream
    outputs: int
    descriptors: int
    groups: int  # of channels with descriptors of their own
    dimensions: int
    size: int  # of all dimensions but the outermost: below this


CORE = Limits(data_bytes=65536, locks=16, inputs=2, outputs=2, descriptors=16, groups=1, dimensions=3, size=256)
MEMORY = Limits(data_bytes=524288, locks=64, inputs=6, outputs=6, descriptors=24, groups=2, dimensions=4, size=1024)
DEVICES = {"npu1": "npu1", "npu4": "npu2"}  # as mlir-aie calls arrays of all columns


@dataclass(frozen=True)
class Tile:
    column: int
    row: int

    @property
    def limits(self):
        return MEMORY if self.row == MEMORY_ROW else CORE

    def __str__(self):
        return f"{self.column}_{self.row}"


@dataclass(frozen=True)
class Buffer:
    tile: Tile
    name: str
    element: str
    count: int
    address: int

    @property
    def bytes(self):
        return self.count * ELEMENT_BYTES[self.element]


@dataclass(frozen=True)
class Lock:
    tile: Tile
    number: int
    initial: int


@dataclass(frozen=True)
class Stream:
    """The two locks of the buffers that a channel fills and another empties."""

    free: Lock
    full: Lock


@dataclass(frozen=True)
class Descriptor:
    buffer: Buffer
    takes: Lock
    gives: Lock
    dimensions: tuple = ()  # (size, step) in elements, outermost first; (): the buffer in order


@dataclass(frozen=True)
class Port:
    """A DMA channel of a tile, as the end of a stream."""

    tile: Tile
    channel: int


@dataclass
class Core:
    tile: Tile
    program: str
    object_file: str
    stack_bytes: int
    arguments: list


@dataclass
class Array:
    name: str
    device: str  # of ours
    columns: int
    buffers: list = field(default_factory=list)
    locks: list = field(default_factory=list)
    inputs: dict = field(default_factory=dict)  # Port: descriptors
    outputs: dict = field(default_factory=dict)
    flows: list = field(default_factory=list)  # (Port, Port)
    cores: list = field(default_factory=list)
    next_address: dict = field(default_factory=dict)

    def reserve(self, tile, num_bytes):
        """Room in a tile that no buffer gets.  Returns its address."""
        address = -(-self.next_address.get(tile, 0) // ALIGNMENT) * ALIGNMENT
        self.next_address[tile] = address + num_bytes
        return address

    def buffer(self, tile, name, element, count, address=None):
        if address is None:
            address = self.reserve(tile, count * ELEMENT_BYTES[element])
        self.buffers.append(Buffer(tile, f"{name}_{tile}", element, count, address))
        return self.buffers[-1]

    def lock(self, tile, number, initial=0):
        self.locks.append(Lock(tile, number, initial))
        return self.locks[-1]

    def stream(self, tile, number, objects):
        """Locks `number` and the next one, of a stream whose buffers hold `objects`."""
        return Stream(self.lock(tile, number, objects), self.lock(tile, number + 1))

    def fills(self, tile, channel, descriptors):
        """A channel from a stream into buffers.  Returns its port."""
        return self._channel(self.inputs, Port(tile, channel), descriptors)

    def empties(self, tile, channel, descriptors):
        return self._channel(self.outputs, Port(tile, channel), descriptors)

    def _channel(self, channels, port, descriptors):
        if port in channels:
            raise ValueError(f"{self.name}: two uses of channel {port.channel} of tile {port.tile}")
        channels[port] = list(descriptors)
        return port

    def flow(self, source, destination):
        self.flows.append((source, destination))

    def check(self):
        """Raises ValueError: more than a tile has, buffers that overlap or share a name, ends of streams without the
        other end."""
        names = [buffer.name for buffer in self.buffers]
        for name in names:
            if names.count(name) > 1 or name.split("_")[0] in ("tile", "lock", "core", "dma"):
                raise ValueError(f"{self.name}: a buffer's name is taken: {name}")
        for tile in sorted({item.tile for item in self.buffers + self.locks}, key=str):
            self._check_tile(tile)
        sources = [source for source, _ in self.flows]
        destinations = [destination for _, destination in self.flows]
        if len(set(destinations)) < len(destinations):
            raise ValueError(f"{self.name}: two streams end in one channel")
        for kind, channels, ends in (("reads", self.inputs, destinations), ("feeds", self.outputs, sources)):
            inner = {end for end in ends if end.tile.row != SHIM_ROW}
            if inner != set(channels):
                raise ValueError(f"{self.name}: a channel {kind} no stream: {inner ^ set(channels)}")

    def _check_tile(self, tile):
        limits = tile.limits

        def wrong(what):
            raise ValueError(f"{self.name}: tile {tile}: {what}")

        end = 0
        for buffer in sorted((b for b in self.buffers if b.tile == tile), key=lambda b: b.address):
            if buffer.address < end:
                wrong(f"{buffer.name} at {buffer.address}, taken up to {end}")
            end = buffer.address + buffer.bytes
        if end > limits.data_bytes:
            wrong(f"{end} bytes of {limits.data_bytes}")
        numbers = [lock.number for lock in self.locks if lock.tile == tile]
        if len(set(numbers)) < len(numbers) or max(numbers, default=0) >= limits.locks:
            wrong(f"locks {numbers}")
        used = [0] * limits.groups
        for channels, count in ((self.inputs, limits.inputs), (self.outputs, limits.outputs)):
            for port, descriptors in channels.items():
                if port.tile != tile:
                    continue
                if port.channel >= count:
                    wrong(f"channel {port.channel} of {count}")
                used[port.channel % limits.groups] += len(descriptors)
                for descriptor in descriptors:
                    self._check_descriptor(descriptor, wrong)
        if max(used) > limits.descriptors:
            wrong(f"{used} descriptors, {limits.descriptors} for each")

    @staticmethod
    def _check_descriptor(descriptor, wrong):
        limits, dimensions = descriptor.buffer.tile.limits, descriptor.dimensions
        if not dimensions:
            return
        if len(dimensions) > limits.dimensions or any(size >= limits.size for size, _ in dimensions[1:]):
            wrong(f"dimensions {dimensions}")
        total, element = 1, ELEMENT_BYTES[descriptor.buffer.element]
        for size, step in dimensions:
            total *= size
            if step != 1 and step * element % 4 != 0:
                wrong(f"a step of {step * element} bytes")
        if dimensions[-1][1] != 1 or dimensions[-1][0] * element % 4 != 0 or total != descriptor.buffer.count:
            wrong(f"dimensions {dimensions} of {descriptor.buffer.count} elements")


def as_json(array):
    """For tests; steps and sizes in elements."""

    def channel(port, direction, descriptors):
        return {
            "column": port.tile.column,
            "row": port.tile.row,
            "direction": direction,
            "channel": port.channel,
            "descriptors": [
                {
                    "buffer": d.buffer.name,
                    "takes": d.takes.number,
                    "gives": d.gives.number,
                    "dimensions": [list(dimension) for dimension in d.dimensions],
                }
                for d in descriptors
            ],
        }

    def end(port):
        return {"column": port.tile.column, "row": port.tile.row, "channel": port.channel}

    return {
        "name": array.name,
        "device": array.device,
        "columns": array.columns,
        "buffers": [
            {
                "column": b.tile.column,
                "row": b.tile.row,
                "name": b.name,
                "address": b.address,
                "element_bytes": ELEMENT_BYTES[b.element],
                "count": b.count,
            }
            for b in array.buffers
        ],
        "locks": [
            {"column": k.tile.column, "row": k.tile.row, "number": k.number, "initial": k.initial} for k in array.locks
        ],
        "channels": [channel(port, "from_stream", d) for port, d in array.inputs.items()]
        + [channel(port, "to_stream", d) for port, d in array.outputs.items()],
        "flows": [{"from": end(source), "to": end(destination)} for source, destination in array.flows],
        "cores": [
            {
                "column": c.tile.column,
                "row": c.tile.row,
                "program": c.program,
                "object": c.object_file,
                "stack_bytes": c.stack_bytes,
                "arguments": [b.name for b in c.arguments],
            }
            for c in array.cores
        ],
    }


def as_mlir(array):
    """The `aie` dialect of mlir-aie 1.2.  Without a runtime sequence, because the worker makes control code: the
    kernel has the five data buffers that aiecc gives each."""
    lines = ["module {", f"  aie.device({DEVICES[array.device]}) {{"]
    add = lines.append
    tiles = {Tile(column, row) for column in range(array.columns) for row in range(FIRST_CORE_ROW + 4)}
    for tile in sorted(tiles, key=lambda t: (t.column, t.row)):
        add(f"    %tile_{tile} = aie.tile({tile.column}, {tile.row})")
    for buffer in array.buffers:
        add(
            f"    %{buffer.name} = aie.buffer(%tile_{buffer.tile}) "
            f'{{address = {buffer.address} : i32, sym_name = "{buffer.name}"}} : {_type(buffer)}'
        )
    for lock in array.locks:
        add(f"    %{_lock(lock)} = aie.lock(%tile_{lock.tile}, {lock.number}) {{init = {lock.initial} : i32}}")
    for source, destination in array.flows:
        add(
            f"    aie.flow(%tile_{source.tile}, DMA : {source.channel}, "
            f"%tile_{destination.tile}, DMA : {destination.channel})"
        )
    declared = set()
    for core in array.cores:
        if core.program not in declared:
            types = ", ".join(_type(b) for b in core.arguments)
            add(f"    func.func private @{core.program}({types})")
            declared.add(core.program)
    for core in array.cores:
        lines += _core(core)
    for tile in sorted({port.tile for port in (*array.inputs, *array.outputs)}, key=lambda t: (t.column, t.row)):
        lines += _dma(array, tile)
    lines += ["  }", "}", ""]
    return "\n".join(lines)


def _type(buffer):
    return f"memref<{buffer.count}x{buffer.element}>"


def _lock(lock):
    return f"lock_{lock.tile}_{lock.number}"


def _core(core):
    names = ", ".join(f"%{b.name}" for b in core.arguments)
    types = ", ".join(_type(b) for b in core.arguments)
    return [
        f"    %core_{core.tile} = aie.core(%tile_{core.tile}) {{",
        f"      func.call @{core.program}({names}) : ({types}) -> ()",
        "      aie.end",
        f'    }} {{link_with = "{core.object_file}", stack_size = {core.stack_bytes} : i32}}',
    ]


def _dma(array, tile):
    operation = "memtile_dma" if tile.row == MEMORY_ROW else "mem"
    lines = [f"    %dma_{tile} = aie.{operation}(%tile_{tile}) {{"]
    channels = [("S2MM", port.channel, d) for port, d in array.inputs.items() if port.tile == tile]
    channels += [("MM2S", port.channel, d) for port, d in array.outputs.items() if port.tile == tile]
    for index, (direction, number, descriptors) in enumerate(channels):
        chain = f"^channel{index + 1}" if index + 1 < len(channels) else "^end"
        if index > 0:
            lines.append(f"    ^channel{index}:")
        lines.append(f"      %start{index} = aie.dma_start({direction}, {number}, ^block{index}_0, {chain})")
        for i, descriptor in enumerate(descriptors):
            buffer = descriptor.buffer
            sizes = ", ".join(f"<size = {size}, stride = {step}>" for size, step in descriptor.dimensions)
            dimensions = f", [{sizes}]" if sizes else ""
            lines += [
                f"    ^block{index}_{i}:",
                f"      aie.use_lock(%{_lock(descriptor.takes)}, AcquireGreaterEqual, 1)",
                f"      aie.dma_bd(%{buffer.name} : {_type(buffer)}, 0, {buffer.count}{dimensions})",
                f"      aie.use_lock(%{_lock(descriptor.gives)}, Release, 1)",
                f"      aie.next_bd ^block{index}_{(i + 1) % len(descriptors)}",
            ]
    return [*lines, "    ^end:", "      aie.end", "    }"]
