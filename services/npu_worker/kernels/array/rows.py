"""The row functions' array: what ../README.md says of its streams.  Columns do not depend on one another."""

from columns import CORE_ROWS, CoreTile, broadcast, core, deal, emptied, filled, join, new_array
from model import Port

# Locks of the memory tile: four pairs of rows, one of weights, four of outputs.
ROWS, WEIGHTS, OUTPUT = 0, 8, 10
OBJECTS = 2  # in a core's rings


def design(declaration, operator):
    array = new_array(declaration, operator)
    words = operator["tile"]["object_words"]
    for column in range(array.columns):
        cores = [core(column, row) for row in CORE_ROWS]
        for place in cores:
            add_core(array, operator, place)
        deal(array, column, ("rows", "f32", words), ROWS, (), [Port(place, 0) for place in cores])
        broadcast(
            array, column, 1, 4, ("weights", "f32", words, 2), WEIGHTS, (), [Port(place, 1) for place in cores]
        )
        join(array, column, 5, ("outputs", "f32", words), OUTPUT, (), [Port(place, 0) for place in cores])
    return array


def add_core(array, operator, place):
    tile = operator["tile"]
    program = CoreTile(array, operator, place)
    rows = program.ring("rows", "f32", tile["object_words"], OBJECTS)
    weights = program.ring("weights", "f32", tile["object_words"], OBJECTS)
    outputs = program.ring("outputs", "f32", tile["object_words"], OBJECTS)
    program.buffer("row", "f32", tile["max_norm"])
    program.buffer("norm_weights", "f32", tile["max_norm"])
    program.buffer("second", "f32", tile["max_head"])
    program.buffer("halves", "bf16", tile["max_head"])
    array.fills(place, 0, filled(rows, program.stream("first", OBJECTS)))
    array.fills(place, 1, filled(weights, program.stream("second", OBJECTS)))
    array.empties(place, 0, emptied(outputs, program.stream("output", OBJECTS)))
