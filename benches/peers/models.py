"""The models of the table, as GGUF files. Run by the interpreter that has `gguf`, `numpy` and `llama_cpp`.

    python benches/peers/models.py SOURCE.gguf FOLDER NAME...

`smollm2.W` is SmolLM2-135M in the weight format W, from the Q4_1 file that `scripts/fetch-smollm2.sh` downloads: its
numbers are unpacked to F16, and llama.cpp quantises those as it does for everybody (its default mix: embeddings that
are also the output layer get 8 bits or 6). `1.1b.W` has random weights in the geometry of TinyLlama 1.1B.

Both may have 16,384 positions, more than SmolLM2 was trained for: the table measures behind 8,192 tokens, and no
number depends on what the text means. Nothing else of the Q4_1 file is changed."""

import shutil
import sys
from pathlib import Path

POSITIONS = 16384
# llama.cpp's `llama_ftype`.
FTYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_1": 9, "BF16": 32}
NAMES = [f"{model}.{weights}" for model in ("smollm2", "1.1b") for weights in FTYPES]


def path(folder: Path, name: str) -> Path:
    """Where the model of that name is kept."""
    return folder / f"{name}.gguf"


def make(source: Path, folder: Path, name: str) -> Path:
    """Makes the model unless it is there. Files appear complete or not at all."""
    made = path(folder, name)
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    part = made.with_suffix(".part")
    model, weights = name.rsplit(".", 1)
    print(f"making {made}", file=sys.stderr)
    match model, weights:
        case "smollm2", "Q4_1":
            lengthen(source, part)
        case "smollm2", "F16":
            unpack(source, part)
        case "1.1b", "F16":
            random_weights(part)
        case _:
            quantise(make(source, folder, f"{model}.F16"), part, weights)
    part.rename(made)
    return made


def lengthen(source: Path, target: Path) -> None:
    """A copy with more positions."""
    from gguf import GGUFReader

    shutil.copyfile(source, target)
    field = GGUFReader(target, "r+").fields["llama.context_length"]
    field.parts[field.data[0]][0] = POSITIONS


def unpack(source: Path, target: Path) -> None:
    """Every matrix as F16, vectors as they are."""
    import numpy
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.quantization_version"):
            continue
        value = field.contents()
        if field.name == "llama.context_length":
            value = POSITIONS
        elif field.name == "general.file_type":
            value = FTYPES["F16"]
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], inner)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(numpy.float16 if values.ndim > 1 else numpy.float32))
    write(writer)


def random_weights(target: Path) -> None:
    """22 layers, 2048 wide, 32 heads on 4 KV heads of 64, 5632 in the MLP, a vocabulary of 32000; F16."""
    import numpy
    from gguf import GGUFWriter

    layers, width, heads, kv_heads, hidden, vocab = 22, 2048, 32, 4, 5632, 32000
    kv_width = width // heads * kv_heads
    writer = GGUFWriter(target, "llama")
    writer.add_name("random 1.1B")
    writer.add_file_type(FTYPES["F16"])
    writer.add_block_count(layers)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    # A SentencePiece vocabulary of specials, bytes and invented words: enough to be loaded, for no text is read.
    words = [f"w{i}" for i in range(vocab - 259)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words])
    writer.add_token_scores([0.0] * 259 + [-1.0 - i for i in range(len(words))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    rng = numpy.random.default_rng(7)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = rng.standard_normal((rows, columns), dtype=numpy.float32) * numpy.float32(0.02)
        writer.add_tensor(f"{name}.weight", values.astype(numpy.float16))

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", numpy.ones(width, dtype=numpy.float32))

    matrix("token_embd", vocab, width)
    for layer in range(layers):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm")
        matrix(f"{block}.attn_q", width, width)
        matrix(f"{block}.attn_k", kv_width, width)
        matrix(f"{block}.attn_v", kv_width, width)
        matrix(f"{block}.attn_output", width, width)
        ones(f"{block}.ffn_norm")
        matrix(f"{block}.ffn_gate", hidden, width)
        matrix(f"{block}.ffn_up", hidden, width)
        matrix(f"{block}.ffn_down", width, hidden)
    ones("output_norm")
    matrix("output", vocab, width)
    write(writer)


def write(writer) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(source: Path, target: Path, weights: str) -> None:
    """What `llama-quantize SOURCE TARGET WEIGHTS` does."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FTYPES[weights]
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params)
    if status != 0:
        raise RuntimeError(f"llama_model_quantize answered {status} for {target}")


if __name__ == "__main__":
    source, folder, *names = sys.argv[1:]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"unknown models {unknown}; known: {NAMES}")
    for name in names:
        make(Path(source), Path(folder), name)
