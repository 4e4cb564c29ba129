"""torch with transformers: the model of the same GGUF file, unpacked to the number format asked for, with the cache that
transformers picks by itself (`DynamicCache`), in inference mode. `cache` is the number format of weights and rows."""

from pathlib import Path

import worker

CHUNK = 512


class Torch:
    def __init__(self, model: str, cache: str, threads: int, work: dict):
        self.work = work
        torch.set_num_threads(threads)
        dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[cache]
        file = Path(model)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=dtype)
        self.model.eval()
        vocab = self.model.config.vocab_size
        self.tokens = torch.tensor([worker.tokens(0, work["depth"] + work["n"], vocab)])
        self.cache = None
        self.about = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "flags": f"{cache}, {torch.get_num_threads()} threads, DynamicCache, attention: "
            f"{self.model.config._attn_implementation}, inference mode, not compiled, kernels for "
            f"{torch.backends.cpu.get_cpu_capability()}",
        }

    def feed(self, begin: int, end: int, chunk: int) -> None:
        for at in range(begin, end, chunk):
            ids = self.tokens[:, at : min(end, at + chunk)]
            self.model(ids, cache=self.cache, use_cache=True, logits_to_keep=1)

    def rewind(self) -> None:
        """Back to the depth, which is computed once."""
        depth = self.work["depth"]
        with torch.inference_mode():
            if self.work["kind"] == "none":
                return
            if self.cache is None or depth == 0:
                self.cache = transformers.DynamicCache(config=self.model.config)
                self.feed(0, depth, CHUNK)
            else:
                self.cache.crop(depth - self.cache.get_seq_length())
            if self.cache.get_seq_length() != depth:
                raise RuntimeError(f"the cache has {self.cache.get_seq_length()} tokens instead of {depth}")

    def run(self) -> None:
        depth, end = self.work["depth"], self.work["depth"] + self.work["n"]
        with torch.inference_mode():
            match self.work["kind"]:
                case "pp":
                    self.feed(depth, end, CHUNK)
                case "tg":
                    self.feed(depth, end, 1)
                case "none":
                    for length in range(depth + 1, end + 1):
                        self.model(self.tokens[:, :length], use_cache=False, logits_to_keep=1)


def load():
    global torch, transformers
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return Torch


if __name__ == "__main__":
    worker.serve(load)
