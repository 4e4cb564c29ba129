"""Those that take part, each in processes of its own: kvlab by its command line, the others by their workers."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from rows import Entry

HERE = Path(__file__).resolve().parent
# What an interpreter has of these packages, a line each.
INSTALLED = """
from importlib import metadata
wanted = {"llama-cpp-python", "llama_cpp_python", "torch", "transformers", "gguf", "numpy"}
print(*(f"{one.name} {one.version}" for one in metadata.distributions() if one.name in wanted), sep="\\n")
"""
WORKERS = {"llama.cpp": "llama_worker.py", "torch": "torch_worker.py"}


class Missing(Exception):
    """It is not installed, or what it needs is not there."""


class Failed(Exception):
    """It was there and could not do it."""


class OutOfTime(Exception):
    """The row's time is over."""


class Kvlab:
    """`kvlab bench`, a process for each round, which loads the model and fills the cache again."""

    numbers = itertools.count()

    def __init__(self, entry: Entry, model: Path, options, _deadline: float):
        if not options.kvlab.exists():
            raise Missing(f"{options.kvlab} is not built: cargo build --release")
        work = entry.work
        if entry.cache == "none":
            cache = 'variant = "none"'
        else:
            cache = f'capacity = "{work.depth + work.n} tokens"\nkey = "{entry.cache}"\nvalue = "{entry.cache}"'
        self.config = options.scratch / f"kvlab-{os.getpid()}-{next(self.numbers)}.toml"
        text = (
            f'schema = 1\nname = "{entry.model}"\n\n[model]\npath = {json.dumps(str(model.resolve()))}\n\n'
            f'[cache]\n{cache}\n\n[backend]\ndevice = "cpu"\nthreads = {options.threads}\n'
        )
        self.config.write_text(text)
        n = ["-p", str(work.n), "-n", "0"] if work.kind == "pp" else ["-p", "0", "-n", str(work.n)]
        sets = [word for setting in entry.sets for word in ("--set", setting)]
        self.command = [str(options.kvlab), "bench", str(self.config), *sets, *n, "-d", str(work.depth), "-o", "json"]
        self.peak = 0
        # Nothing is loaded before the model.
        self.before = None
        self.about = {"flags": " ".join([*self.command[1:2], *self.command[3:]]), "config": text}

    def round(self, repeats: int, deadline: float) -> list[float]:
        process = subprocess.Popen(
            [*self.command, "-r", str(repeats)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        reader.start()
        clock = threading.Timer(max(deadline - time.monotonic(), 0), process.kill)
        clock.start()
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        late = not clock.is_alive()
        clock.cancel()
        reader.join()
        process.stderr.close()
        if late:
            raise OutOfTime
        if process.returncode != 0:
            raise Failed(errors[0].strip())
        # Linux counts in KiB.
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        (record,) = json.loads(text)
        self.about |= {key: record[key] for key in ("cache", "device", "type_k", "type_v", "kernels", "n_threads")}
        return record["samples_ts"]

    def close(self) -> None:
        self.config.unlink(missing_ok=True)


class Worker:
    """One process for all rounds: it loads the model and fills the cache once. Between its turns it is stopped, so that
    threads that wait for work by spinning take nothing from the others."""

    def __init__(self, entry: Entry, model: Path, options, deadline: float):
        with (options.scratch / f"{entry.program}.log").open("a") as log:
            program = [options.python, HERE / WORKERS[entry.program]]
            self.process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.tokens = entry.work.n
        self.peak = self.before = 0
        work = {"kind": "tg" if entry.work.kind == "memory" else entry.work.kind, "n": entry.work.n, "depth": entry.work.depth}
        try:
            opened = self.ask(
                {"do": "open", "model": str(model), "cache": entry.cache, "threads": options.threads, "work": work}, deadline
            )
        except Exception:
            self.close()
            raise
        self.about = opened["about"]

    def ask(self, request: dict, deadline: float) -> dict:
        clock = threading.Timer(max(deadline - time.monotonic(), 0), self.process.kill)
        clock.start()
        self.process.send_signal(signal.SIGCONT)
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # It says why, or it ended: both are seen below.
        line = self.process.stdout.readline()
        late = not clock.is_alive()
        clock.cancel()
        if late:
            raise OutOfTime
        self.process.send_signal(signal.SIGSTOP)
        if not line:
            raise Failed(f"its process ended with {self.process.wait()}")
        answer = json.loads(line)
        if "missing" in answer:
            raise Missing(answer["missing"])
        if "error" in answer:
            raise Failed(answer["error"])
        self.peak, self.before = answer["peak"], answer["before"]
        return answer

    def round(self, repeats: int, deadline: float) -> list[float]:
        samples = self.ask({"do": "round", "repeats": repeats}, deadline)["samples"]
        return [self.tokens / seconds for seconds in samples]

    def close(self) -> None:
        self.process.kill()
        # Waits, and closes the pipes.
        self.process.communicate()


def begin(entry: Entry, model: Path, options, deadline: float):
    """The contender of an entry, with its model open."""
    kind = Kvlab if entry.program == "kvlab" else Worker
    return kind(entry, model, options, deadline)


def versions(options) -> dict:
    """What each of them is, as far as it is there."""
    found = {}
    if options.kvlab.exists():
        said = subprocess.run([options.kvlab, "--version"], capture_output=True, text=True)
        found["kvlab"] = said.stdout.removeprefix("kvlab").strip()
    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True)
    found["checkout"] = commit.stdout.strip()
    said = subprocess.run([options.python, "-c", INSTALLED], capture_output=True, text=True)
    found |= dict(line.split() for line in said.stdout.splitlines())
    return found


if __name__ == "__main__":
    sys.exit("this is a part of run.py")
