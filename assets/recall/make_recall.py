"""Writes the constructed recall model: python3 make_recall.py (standard library only; the weights are chosen, not trained).

Two layers of one head and a feed-forward network of zeros. Layer 0 looks at the token before (its scores depend on the
distance alone, by RoPE, and are largest at 1). Layer 1 has no positions: the token asks for rows whose *previous* token it is,
and copies the token of those rows. Together: what followed this character last time? It is the induction head of Elhage et
al., "A Mathematical Framework for Transformer Circuits" (2021), written down by hand.

A hidden state is [this token (64) | token before (64) | answer (64) | one (1) | zeros (7)], tokens one-hot. The 24 symbols
have slots of their own, so that a needle made of them is found for certain; all other bytes share 40 slots.
"""
import json
import math
import struct

SYMBOLS = b"01345678#$%&+/<=>@\\^{|}~"  # none of them is in alice_95k.txt
DIM, SLOTS, HIDDEN, VOCAB = 64, 64, 200, 256
THIS, BEFORE, ANSWER, ONE = 0, 64, 128, 192
THETA = 100.0
# Squared lengths of a hidden state before the norms of layer 0, layer 1 and the head: one-hot parts and the constant.
NORM = [math.sqrt(HIDDEN / n) for n in (2, 3, 4)]
DISTANCE = 10.0  # score per pair of dimensions, at distance 1: exp(-18) is left for the next best
MATCH = 25.0     # score of a row that is asked for; all others have 0
LOGIT = 8.0      # of the answer, if it is a symbol


def slot(byte):
    return SYMBOLS.index(byte) if byte in SYMBOLS else len(SYMBOLS) + byte % (SLOTS - len(SYMBOLS))


def zeros(rows, columns):
    return [[0.0] * columns for _ in range(rows)]


def place(matrix, row, column, size, value):
    for i in range(size):
        matrix[row + i][column + i] = value
    return matrix


def tensors():
    embedding, head = zeros(VOCAB, HIDDEN), zeros(VOCAB, HIDDEN)
    for byte in range(VOCAB):
        embedding[byte][THIS + slot(byte)] = embedding[byte][ONE] = 1.0
        # Half for what shares a slot: of two rows that were found, the symbol's wins.
        head[byte][ANSWER + slot(byte)] = LOGIT / NORM[2] * (1.0 if byte in SYMBOLS else 0.5)
    yield "model.embed_tokens.weight", embedding
    yield "lm_head.weight", head
    yield "model.norm.weight", [[1.0] * HIDDEN]
    for layer in range(2):
        q, k, v, o = zeros(DIM, HIDDEN), zeros(DIM, HIDDEN), zeros(DIM, HIDDEN), zeros(HIDDEN, DIM)
        if layer == 0:
            # A key is one direction in each pair of dimensions; the query is the same, turned by one position. Each has
            # the length sqrt(DISTANCE * 8): scores are divided by sqrt(64).
            length = math.sqrt(DISTANCE * math.sqrt(DIM)) / NORM[0]
            for pair in range(DIM // 2):
                angle = THETA ** (-pair / (DIM // 2))
                k[pair][ONE] = length
                q[pair][ONE], q[pair + DIM // 2][ONE] = length * math.cos(angle), -length * math.sin(angle)
            place(v, 0, THIS, SLOTS, 1 / NORM[0])
            place(o, BEFORE, 0, SLOTS, 1.0)
        else:
            length = math.sqrt(MATCH * math.sqrt(DIM)) / NORM[1]
            place(q, 0, THIS, SLOTS, length)
            place(k, 0, BEFORE, SLOTS, length)
            place(v, 0, THIS, SLOTS, 1 / NORM[1])
            place(o, ANSWER, 0, SLOTS, 1.0)
        name = f"model.layers.{layer}."
        for part, matrix in (("q", q), ("k", k), ("v", v), ("o", o)):
            yield f"{name}self_attn.{part}_proj.weight", matrix
        yield name + "mlp.gate_proj.weight", zeros(8, HIDDEN)
        yield name + "mlp.up_proj.weight", zeros(8, HIDDEN)
        yield name + "mlp.down_proj.weight", zeros(HIDDEN, 8)
        yield name + "input_layernorm.weight", [[1.0] * HIDDEN]
        yield name + "post_attention_layernorm.weight", [[1.0] * HIDDEN]


def main():
    header, data = {}, b""
    for name, matrix in tensors():
        shape = [len(matrix), len(matrix[0])] if not name.endswith("norm.weight") else [len(matrix[0])]
        flat = [x for row in matrix for x in row]
        packed = struct.pack(f"<{len(flat)}e", *flat)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open("model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    config = {
        "architectures": ["SmolLM3ForCausalLM"],
        "model_type": "smollm3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-9,
        "max_position_embeddings": 8192,
        "rope_theta": THETA,
        "no_rope_layers": [1, 0],
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    }
    with open("config.json", "w") as file:
        file.write(json.dumps(config, indent=2) + "\n")


main()
