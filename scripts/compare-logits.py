#!/usr/bin/env python3
"""How far logits moved. Needs numpy, safetensors and llama_cpp: benches/peers/requirements.txt.

    scripts/compare-logits.py ids MODEL.gguf TEXT FIRST COUNT > ids.json
        COUNT token ids of a text from byte FIRST on.
    scripts/compare-logits.py REFERENCE.safetensors OTHER.safetensors ...
        Files of `kvlab logits` with the same ids: for each, the largest difference of a logit, the root mean square, KL
        divergence from the reference in nats a token, and how many tokens have another best one."""

import json
import sys


def ids(model: str, text: str, first: str, count: str) -> None:
    from llama_cpp import Llama

    with open(text, "rb") as file:
        text = file.read()[int(first) :]
    vocabulary = Llama(model, vocab_only=True, verbose=False)
    print(json.dumps(vocabulary.tokenize(text, add_bos=False)[: int(count)]))


def compare(reference: str, others: list[str]) -> None:
    import numpy
    from safetensors.numpy import load_file

    def logits(path):
        return load_file(path)["logits"].astype(numpy.float64)

    def log_softmax(x):
        x = x - x.max(-1, keepdims=True)
        return x - numpy.log(numpy.exp(x).sum(-1, keepdims=True))

    want = logits(reference)
    p = log_softmax(want)
    print("| | largest difference | root mean square | KL, nats a token | best token differs |")
    print("|---|---|---|---|---|")
    for path in others:
        got = logits(path)
        off = abs(got - want)
        kl = (numpy.exp(p) * (p - log_softmax(got))).sum(-1).mean()
        best = (want.argmax(-1) != got.argmax(-1)).sum()
        print(f"| {path} | {off.max():.1e} | {(off**2).mean() ** 0.5:.1e} | {kl:.1e} | {best} |")


match sys.argv[1:]:
    case ["ids", model, text, first, count]:
        ids(model, text, first, count)
    case [reference, *others] if others and reference != "ids":
        compare(reference, others)
    case _:
        sys.exit(__doc__)
