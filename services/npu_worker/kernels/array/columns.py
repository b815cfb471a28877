"""What the designs share: a core's parameters and streams, and the ways between a column's tiles.

    shim 0 --> memory tile --> cores     objects that the cores take by turns, or all of them
    shim 1 --> memory tile --> cores     objects for all four
    cores  --> memory tile --> shim 0    an object of each core in turn

Tokens of shim tiles need routes to the controller: aiecc adds them (aie-generate-column-control-overlay).
"""

from model import Array, Core, Descriptor, FIRST_CORE_ROW, MEMORY_ROW, Port, SHIM_ROW, Stream, Tile

CORE_ROWS = range(4)
PARAMETER_WORDS = 16
# Of 64 KiB.  The bytes behind the parameters are for the program's own data.
STACK_BYTES = 3072
# Locks of a memory tile, by the stream that its buffers belong to: two each.
FIRST, SECOND, OUTPUTS = 0, 2, 4
DEPTH = 2  # objects of a stream in a memory tile


def shim(column, channel):
    return Port(Tile(column, SHIM_ROW), channel)


def memory(column):
    return Tile(column, MEMORY_ROW)


def core(column, row):
    return Tile(column, FIRST_CORE_ROW + row)


def new_array(declaration, operator):
    return Array(operator["entry"]["name"], declaration["device"], declaration["columns"])


class CoreTile:
    """A core's parameters, streams and program; buffers follow in the order of the program's arguments."""

    def __init__(self, array, operator, tile):
        self.array, self.operator, self.tile = array, operator, tile
        place = operator["entry"]["parameters"]
        array.reserve(tile, STACK_BYTES)
        array.lock(tile, place["lock"])
        parameters = array.buffer(tile, "parameters", "i32", PARAMETER_WORDS, address=place["address"])
        program = operator["program"]
        self.core = Core(tile, program["name"], program["object"], STACK_BYTES, [parameters])
        array.cores.append(self.core)

    def buffer(self, name, element, count):
        """A buffer that the program gets as its next argument."""
        buffer = self.array.buffer(self.tile, name, element, count)
        self.core.arguments.append(buffer)
        return buffer

    def ring(self, name, element, count, objects):
        """As buffer, of `objects` side by side.  Returns them."""
        first = self.array.buffer(self.tile, f"{name}0", element, count)
        self.core.arguments.append(first)
        rest = [self.array.buffer(self.tile, f"{name}{i}", element, count) for i in range(1, objects)]
        for i, buffer in enumerate(rest, 1):
            if buffer.address != first.address + i * first.bytes:
                raise ValueError(f"{self.array.name}: {buffer.name} is not beside the one before")
        return [first, *rest]

    def stream(self, name, objects):
        """The locks of `first`, `second` or `output`."""
        locks = self.operator["streams"][name]
        free = self.array.lock(self.tile, locks["free"], objects)
        return Stream(free, self.array.lock(self.tile, locks["full"]))


def filled(buffers, stream, dimensions=()):
    return [Descriptor(b, stream.free, stream.full, dimensions) for b in buffers]


def emptied(buffers, stream, dimensions=()):
    return [Descriptor(b, stream.full, stream.free, dimensions) for b in buffers]


def broadcast(array, column, channel, source_channel, objects, lock, dimensions, destinations):
    """From shim channel `channel` through objects (name, element, count, number of them) in the memory tile to
    all destinations."""
    tile = memory(column)
    name, element, count, number = objects
    stream = array.stream(tile, lock, number)
    buffers = [array.buffer(tile, f"{name}{i}", element, count) for i in range(number)]
    array.flow(shim(column, channel), array.fills(tile, channel, filled(buffers, stream)))
    source = array.empties(tile, source_channel, emptied(buffers, stream, dimensions))
    for destination in destinations:
        array.flow(source, destination)


def deal(array, column, objects, lock, dimensions, destinations):
    """From shim channel 0 to the destinations by turns: channel i of the memory tile leads to the i-th."""
    tile = memory(column)
    name, element, count = objects
    streams = [array.stream(tile, lock + 2 * row, DEPTH) for row in CORE_ROWS]
    buffers = [[array.buffer(tile, f"{name}{row}_{i}", element, count) for i in range(DEPTH)] for row in CORE_ROWS]
    turns = [d for i in range(DEPTH) for row in CORE_ROWS for d in filled([buffers[row][i]], streams[row])]
    array.flow(shim(column, 0), array.fills(tile, 0, turns))
    for row in CORE_ROWS:
        array.flow(array.empties(tile, row, emptied(buffers[row], streams[row], dimensions)), destinations[row])


def join(array, column, channel, objects, lock, dimensions, sources):
    """From the sources by turns to shim channel 0, through channel `channel` of the memory tile."""
    tile = memory(column)
    name, element, count = objects
    streams = [array.stream(tile, lock + 2 * row, DEPTH) for row in CORE_ROWS]
    buffers = [[array.buffer(tile, f"{name}{row}_{i}", element, count) for i in range(DEPTH)] for row in CORE_ROWS]
    for row in CORE_ROWS:
        array.flow(sources[row], array.fills(tile, 2 + row, filled(buffers[row], streams[row])))
    turns = [
        d for i in range(DEPTH) for row in CORE_ROWS for d in emptied([buffers[row][i]], streams[row], dimensions)
    ]
    array.flow(array.empties(tile, channel, turns), shim(column, 0))


def into_blocks(rows, columns, block):
    """Dimensions that read [rows][columns] as blocks of block x block, rows of blocks first."""
    return ((rows // block, block * columns), (columns // block, block), (block, columns), (block, 1))


def out_of_blocks(rows, columns, block):
    """Dimensions that read such blocks as [rows][columns]."""
    size = block * block
    return ((rows // block, columns // block * size), (block, block), (columns // block, size), (block, 1))
