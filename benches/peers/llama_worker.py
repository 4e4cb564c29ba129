"""llama.cpp through `llama-cpp-python`, doing what `llama-bench` does: prompts in batches, then single tokens, with made-up
ids and nothing sampled. Flash attention is on; it also is what a quantised value cache needs."""

import ctypes

import worker

BATCH = 512
# `ggml_type` of the cache; `llama_flash_attn_type`.
CACHES = {"f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30, "f32": 0}
FLASH_ATTENTION = 1


class Llama:
    def __init__(self, model: str, cache: str, threads: int, work: dict):
        self.work = work
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(model.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {model}")
        params = lib.llama_context_default_params()
        params.n_ctx = work["depth"] + work["n"]
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = FLASH_ATTENTION
        params.type_k = params.type_v = CACHES[cache]
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context with a cache of {cache}")
        self.memory = lib.llama_get_memory(self.context)
        vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.tokens = worker.tokens(0, work["depth"] + work["n"], vocab)
        self.filled = False
        self.about = {
            "llama-cpp-python": lib.__version__,
            "system": lib.llama_print_system_info().decode(),
            "flags": f"n_batch = n_ubatch = {BATCH}, flash_attn on, type_k = type_v = {cache}, "
            f"n_threads = n_threads_batch = {threads}, n_ctx = {params.n_ctx}, mmap, extra buffer types (repacking) on",
        }

    def decode(self, begin: int, end: int, batch: int) -> None:
        for at in range(begin, end, batch):
            ids = self.tokens[at : min(end, at + batch)]
            ids = (lib.llama_token * len(ids))(*ids)
            status = lib.llama_decode(self.context, lib.llama_batch_get_one(ids, len(ids)))
            if status != 0:
                raise RuntimeError(f"llama_decode answered {status}")
            lib.llama_synchronize(self.context)

    def rewind(self) -> None:
        """Back to the depth, which is computed once."""
        depth = self.work["depth"]
        if not self.filled:
            lib.llama_memory_clear(self.memory, False)
            self.decode(0, depth, BATCH)
            self.filled = True
        elif not lib.llama_memory_seq_rm(self.memory, 0, depth, -1):
            raise RuntimeError(f"llama.cpp does not cut its cache back to {depth} tokens")

    def run(self) -> None:
        depth, end = self.work["depth"], self.work["depth"] + self.work["n"]
        self.decode(depth, end, BATCH if self.work["kind"] == "pp" else 1)


def load():
    global lib
    import llama_cpp as lib

    lib.llama_backend_init()
    # Kept, for the library keeps only its address.
    Llama.log = lib.llama_log_callback(lambda *_: None)
    lib.llama_log_set(Llama.log, ctypes.c_void_p())
    return Llama


if __name__ == "__main__":
    worker.serve(load)
