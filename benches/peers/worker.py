"""What the workers of llama.cpp and of torch share: requests come as lines of JSON on standard input, answers go as
lines of JSON to standard output. Whatever a library prints goes to standard error.

A request is `{"do": "open", "model": PATH, "cache": NAME, "threads": N, "work": {...}}`, then any number of
`{"do": "round", "repeats": N}`. An answer has `error`, or else what was asked for: `open` names the program, `round`
gives `samples`, in seconds, after one run that is not counted. `peak` is the most memory that the process ever held,
in bytes; `before` is that before the model was opened, with the libraries loaded."""

import json
import os
import sys
import time


def peak() -> int:
    """VmHWM: the most that was resident, mapped files included."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def tokens(begin: int, end: int, vocab: int) -> list[int]:
    """The same made-up ids that `kvlab bench` uses."""
    return [i * 7919 % vocab for i in range(begin, end)]


def serve(load) -> None:
    """`load()` imports the libraries and gives a class; it is opened with `(model, cache, threads, work)` and has
    `about`, `rewind()`, `run()`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**what):
        print(json.dumps(what), file=answers, flush=True)

    try:
        kind = load()
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        answer(missing=f"{type(error).__name__}: {error}")
        return
    before = peak()
    subject = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request.pop("do") == "open":
                subject = kind(**request)
                answer(about=subject.about, before=before, peak=peak())
                continue
            samples = []
            for repeat in range(request["repeats"] + 1):
                subject.rewind()
                start = time.perf_counter()
                subject.run()
                if repeat > 0:
                    samples.append(time.perf_counter() - start)
            answer(samples=samples, before=before, peak=peak())
        except Exception as error:  # noqa: BLE001: whatever it is, it is this row's result
            answer(error=f"{type(error).__name__}: {error}")
