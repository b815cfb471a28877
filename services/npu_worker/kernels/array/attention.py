"""Attention's array: what ../README.md says of its streams.  Columns do not depend on one another."""

from columns import (
    CORE_ROWS, CoreTile, broadcast, core, deal, filled, into_blocks, join, new_array, out_of_blocks,
)
from model import Descriptor, Port

BLOCK = 8
# Locks of the memory tile: four pairs of queries, one of keys and values, four of outputs.
QUERIES, CACHE, OUTPUT = 0, 8, 10


def design(declaration, operator):
    array = new_array(declaration, operator)
    tile = operator["tile"]
    queries, keys, head_dim = (tile[name] for name in ("queries", "keys", "head_dim"))
    for column in range(array.columns):
        cores = [core(column, row) for row in CORE_ROWS]
        for place in cores:
            add_core(array, operator, place)
        deal(
            array, column, ("queries", "bf16", queries * head_dim), QUERIES, into_blocks(queries, head_dim, BLOCK),
            [Port(place, 0) for place in cores],
        )
        broadcast(
            array, column, 1, 4, ("cache", "bf16", keys * head_dim, 2), CACHE, into_blocks(keys, head_dim, BLOCK),
            [Port(place, 1) for place in cores],
        )
        join(
            array, column, 5, ("outputs", "bf16", queries * head_dim), OUTPUT,
            out_of_blocks(queries, head_dim, BLOCK), [Port(place, 0) for place in cores],
        )
    return array


def add_core(array, operator, place):
    tile = operator["tile"]
    program = CoreTile(array, operator, place)
    queries = program.buffer("queries", "bf16", tile["queries"] * tile["head_dim"])
    keys = program.buffer("keys", "bf16", tile["keys"] * tile["head_dim"])
    values = program.buffer("values", "bf16", tile["keys"] * tile["head_dim"])
    program.buffer("sums", "f32", tile["queries"] * tile["head_dim"])
    program.buffer("scores", "f32", tile["queries"] * tile["keys"])
    program.buffer("probabilities", "bf16", tile["queries"] * tile["keys"])
    program.buffer("state", "i8", tile["state_bytes"])
    first = program.stream("first", 1)
    array.fills(place, 0, filled([queries], first))
    # By turns: two objects of one stream.
    array.fills(place, 1, filled([keys, values], program.stream("second", 2)))
    # The output is where the queries were, and leaves room for the next ones.
    output = program.stream("output", 0)
    array.empties(place, 0, [Descriptor(queries, output.full, first.free)])
