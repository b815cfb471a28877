"""A vision encoder that has learnt nothing, as an mmproj file: for tests of all that lies before and behind it."""

import struct

U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9  # GGUF's types of values
ALIGNMENT = 32
IMAGE, PATCH, HIDDEN, FFN, HEADS = 8, 2, 32, 64, 2
TOKENS = 4  # soft tokens of a picture


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def tensors(text_hidden):
    """(name, dimensions with the fastest first)"""
    yield "v.patch_embd.weight", (PATCH, PATCH, 3, HIDDEN)
    yield "v.position_embd.weight", (HIDDEN, (IMAGE // PATCH) ** 2)
    yield "mm.input_projection.weight", (text_hidden, HIDDEN)
    for name in ("v.patch_embd.bias", "v.post_ln.weight", "v.post_ln.bias", "mm.soft_emb_norm.weight"):
        yield name, (HIDDEN,)
    for name, rows, columns in (("ln1", HIDDEN, 0), ("attn_q", HIDDEN, HIDDEN), ("attn_k", HIDDEN, HIDDEN),
                                ("attn_v", HIDDEN, HIDDEN), ("attn_out", HIDDEN, HIDDEN), ("ln2", HIDDEN, 0),
                                ("ffn_up", FFN, HIDDEN), ("ffn_down", HIDDEN, FFN)):
        yield f"v.blk.0.{name}.weight", (columns, rows) if columns else (rows,)
        yield f"v.blk.0.{name}.bias", (rows,)


def write(path, text_hidden=256):
    """Writes an encoder of pictures of 8 x 8 pixels for a model with rows of `text_hidden` numbers."""
    keys = [("general.architecture", STRING, text("clip")), ("clip.projector_type", STRING, text("gemma3")),
            ("clip.has_vision_encoder", BOOL, b"\1"), ("clip.use_gelu", BOOL, b"\1"),
            ("clip.vision.attention.layer_norm_epsilon", F32, struct.pack("<f", 1e-6))]
    keys += [(f"clip.vision.{name}", U32, struct.pack("<I", value)) for name, value in (
        ("image_size", IMAGE), ("patch_size", PATCH), ("embedding_length", HIDDEN), ("feed_forward_length", FFN),
        ("block_count", 1), ("attention.head_count", HEADS), ("projection_dim", text_hidden),
        ("projector.scale_factor", 2))]
    keys += [(f"clip.vision.image_{name}", ARRAY, struct.pack("<IQ3f", F32, 3, 0.5, 0.5, 0.5)) for name in ("mean", "std")]
    infos, data, count = b"", bytearray(), 0
    for name, dimensions in tensors(text_hidden):
        size = 1
        for each in dimensions:
            size *= each
        infos += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, 0, len(data))  # 0: F32
        data += struct.pack(f"<{size}f", *((i * i % 13 - 6) / 8 for i in range(size)))
        data += bytes(-len(data) % ALIGNMENT)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(keys)) + \
        b"".join(text(name) + struct.pack("<I", kind) + value for name, kind, value in keys) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
