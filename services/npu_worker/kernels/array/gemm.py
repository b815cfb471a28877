"""The GEMM's array: what ../README.md says of its streams.

The cores of a row share activations, which come up one column and go to all; the cores of a column share weights.
"""

from columns import (
    CORE_ROWS, FIRST, OUTPUTS, SECOND, CoreTile, broadcast, core, emptied, filled, into_blocks, join, new_array,
    out_of_blocks,
)
from model import Port


def design(declaration, operator):
    array = new_array(declaration, operator)
    tile = operator["tile"]
    rows, outputs, inputs, block = (tile[name] for name in ("rows", "outputs", "inputs", "block"))
    columns = range(array.columns)
    for column in columns:
        for row in CORE_ROWS:
            add_core(array, operator, core(column, row))
    for column in columns:
        if column in CORE_ROWS:
            # To core row `column` of every column.
            broadcast(
                array, column, 0, 0, ("activations", "bf16", rows * inputs, 2), FIRST,
                into_blocks(rows, inputs, block), [Port(core(other, column), 0) for other in columns],
            )
        # As they come: a memory tile holds as many pieces as a core.
        broadcast(
            array, column, 1, 1, ("pieces", "i8", tile["piece_bytes"], min(tile["num_pieces"], 8)), SECOND, (),
            [Port(core(column, row), 1) for row in CORE_ROWS],
        )
        join(
            array, column, 2, ("outputs", "f32", rows * outputs), OUTPUTS, out_of_blocks(rows, outputs, block),
            [Port(core(column, row), 0) for row in CORE_ROWS],
        )
    return array


def add_core(array, operator, place):
    tile = operator["tile"]
    program = CoreTile(array, operator, place)
    activations = program.ring("activations", "bf16", tile["rows"] * tile["inputs"], 2)
    pieces = program.ring("weights", "i8", tile["piece_bytes"], tile["num_pieces"])
    quantised = tile["scale_pieces"] > 0
    # bf16 takes weights as they come: the buffers for other formats are as short as can be.
    program.buffer("gathered", "i8", tile["weight_pieces"] * tile["piece_bytes"] if quantised else 64)
    program.buffer("scales", "bf16", tile["scale_bytes"] // 2 if quantised else 32)
    program.buffer("dequantised", "bf16", tile["inputs"] * tile["outputs"] if quantised else 32)
    sums = program.buffer("sums", "f32", tile["rows"] * tile["outputs"])
    array.fills(place, 0, filled(activations, program.stream("first", 2)))
    array.fills(place, 1, filled(pieces, program.stream("second", tile["num_pieces"])))
    array.empties(place, 0, emptied([sums], program.stream("output", 1)))
