"""Gemma 3's forward pass in float64, with nothing but Python's standard library.

    python3 forward64.py DIR PROMPT [--positions 4] [--stride 32]

DIR holds a safetensors checkpoint (bf16, one file) and its reference.json; PROMPT counts from 0.
Prints JSON: the logits of the last positions of the prompt, every `stride`-th.  The references that
train.py writes carry the rounding of the TF32 products they were made with (a relative error of
some 5e-4 to 1e-3); these do not, and so show whether float32 arithmetic is right to its last digits.
"""
import argparse
import array
import json
import math
import operator
import struct


class Checkpoint:
    def __init__(self, folder):
        self.file = open(f"{folder}/model.safetensors", "rb")
        length = struct.unpack("<Q", self.file.read(8))[0]
        self.header = json.loads(self.file.read(length))
        self.base = 8 + length

    def rows(self, name):
        entry = self.header["model." + name]
        assert entry["dtype"] == "BF16"
        begin, end = entry["data_offsets"]
        self.file.seek(self.base + begin)
        halves = array.array("H", self.file.read(end - begin))
        words = array.array("I", [x << 16 for x in halves])
        values = array.array("f", words.tobytes()).tolist()
        cols = entry["shape"][-1]
        return [values[i:i + cols] for i in range(0, len(values), cols)]

    def vector(self, name):
        return self.rows(name)[0]


def dot(a, b):
    return sum(map(operator.mul, a, b))


def product(matrix, xs):
    return [[dot(row, x) for row in matrix] for x in xs]


def norm(x, w, eps):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return [a * scale * (1 + b) for a, b in zip(x, w)]


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def rotate(head, position, theta, scale):
    half, out = len(head) // 2, head[:]
    for i in range(half):
        angle = position * theta ** (-2 * i / len(head)) / scale
        c, s = math.cos(angle), math.sin(angle)
        out[i] = head[i] * c - head[i + half] * s
        out[i + half] = head[i + half] * c + head[i] * s
    return out


def attend(q, keys, values, scale):
    scores = [dot(q, k) * scale for k in keys]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = sum(weights)
    return [sum(w * v[i] for w, v in zip(weights, values)) / total for i in range(len(q))]


def forward(folder, tokens, num_positions):
    c = json.load(open(f"{folder}/config.json"))
    weights = Checkpoint(folder)
    dim, ratio = c["head_dim"], c["num_attention_heads"] // c["num_key_value_heads"]
    factor = (c.get("rope_scaling") or {}).get("factor", 1.0)
    eps = c["rms_norm_eps"]
    embedding = weights.rows("embed_tokens.weight")
    x = [[a * math.sqrt(c["hidden_size"]) for a in embedding[t]] for t in tokens]

    def normed(name):
        w = weights.vector(name)
        return [norm(row, w, eps) for row in x]

    def add_normed(rows, name):
        w = weights.vector(name)
        return [[a + b for a, b in zip(old, norm(new, w, eps))] for old, new in zip(x, rows)]

    for layer in range(c["num_hidden_layers"]):
        p = f"layers.{layer}."
        is_global = (layer + 1) % c["sliding_window_pattern"] == 0
        theta, scale = (c["rope_theta"], factor) if is_global else (c["rope_local_base_freq"], 1.0)
        inputs = normed(p + "input_layernorm.weight")

        def heads(name):
            rows = product(weights.rows(p + f"self_attn.{name}_proj.weight"), inputs)
            return [[row[i:i + dim] for i in range(0, len(row), dim)] for row in rows]

        def rotated(name):
            w = weights.vector(p + f"self_attn.{name}_norm.weight")
            return [[rotate(norm(h, w, eps), t, theta, scale) for h in row] for t, row in enumerate(heads(name))]

        q, k, v = rotated("q"), rotated("k"), heads("v")
        attention = []
        for t in range(len(tokens)):
            seen = range(0 if is_global else max(0, t - c["sliding_window"] + 1), t + 1)
            row = []
            for h in range(c["num_attention_heads"]):
                row += attend(q[t][h], [k[j][h // ratio] for j in seen], [v[j][h // ratio] for j in seen],
                              c["query_pre_attn_scalar"] ** -0.5)
            attention.append(row)
        x = add_normed(product(weights.rows(p + "self_attn.o_proj.weight"), attention), p + "post_attention_layernorm.weight")
        inputs = normed(p + "pre_feedforward_layernorm.weight")
        gate = product(weights.rows(p + "mlp.gate_proj.weight"), inputs)
        up = product(weights.rows(p + "mlp.up_proj.weight"), inputs)
        hidden = [[gelu(a) * b for a, b in zip(g, u)] for g, u in zip(gate, up)]
        x = add_normed(product(weights.rows(p + "mlp.down_proj.weight"), hidden), p + "post_feedforward_layernorm.weight")
    return product(embedding, normed("norm.weight")[-num_positions:])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("prompt", type=int)
    p.add_argument("--positions", type=int, default=4)
    p.add_argument("--stride", type=int, default=32)
    a = p.parse_args()
    tokens = json.load(open(f"{a.folder}/reference.json"))["prompts"][a.prompt]["tokens"]
    logits = forward(a.folder, tokens, a.positions)
    print(json.dumps({"prompt": a.prompt, "stride": a.stride,
                      "logits": [[round(x, 9) for x in row[::a.stride]] for row in logits]}))


if __name__ == "__main__":
    main()
