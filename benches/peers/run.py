#!/usr/bin/env python3
"""kvlab beside llama.cpp and torch: one interleaved run of the rows of `rows.py`, and a table of ratios. See README.md.

    PEERS/bin/python benches/peers/run.py [--only WORD ...] [--quick]"""

import argparse
import json
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import contenders
import machine
import models
import rows
import summary

ROOT = Path(__file__).resolve().parents[2]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="rows whose name has one of these words, or fits a pattern with *")
    parser.add_argument("--without", nargs="+", default=[], metavar="WHO", help="leave out contenders whose label has one of these words")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 repeat, 16 tokens generated: does it run at all?")
    parser.add_argument("--rounds", type=int, help="turns of each contender (5)")
    parser.add_argument("--repeats", type=int, help="measurements in a turn, after one that does not count (2)")
    parser.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="the most that a row may take (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (%(default)s)")
    parser.add_argument("--kvlab", type=Path, default=ROOT / "target/release/kvlab", help="the binary (%(default)s)")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the interpreter that has the others installed (this one)")
    parser.add_argument("--source", type=Path, default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf", help="SmolLM2 as scripts/fetch-smollm2.sh downloads it")
    parser.add_argument("--models", type=Path, default=ROOT / "models/peers", help="where models are made and kept (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/peers", help="folder of results.json and results.md (%(default)s)")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.repeats = options.repeats or (1 if options.quick else 2)
    options.scratch = options.out / "scratch"
    return options


def model(name: str, options) -> Path:
    """The file of a model, made if need be."""
    made = models.path(options.models, name)
    if made.exists():
        return made
    maker = [options.python, models.__file__, options.source, options.models, name]
    ran = subprocess.run(maker, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        last = ran.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise contenders.Missing(f"the model {name} cannot be made: {last[0]}")
    return made


def turn(contender, options, probe, deadline: float, memory: bool) -> dict:
    """One turn, beside the state that the machine had just before."""
    began = datetime.now(timezone.utc).isoformat(timespec="seconds")
    state = probe()
    samples = contender.round(options.repeats, deadline)
    held = {"peak": contender.peak, "before": contender.before} if memory else {}
    return {"began": began, "machine": state, "samples": samples} | held


def measure(row: rows.Row, options, probe) -> dict:
    """All turns of a row: A B C A B C ..."""
    deadline = time.monotonic() + options.limit
    memory = row.kind == "memory"
    entries = {}
    running = {}

    def gone(label: str, error: Exception) -> None:
        if label in running:
            running.pop(label).close()
        words = {contenders.Missing: "missing", contenders.Failed: "failed", contenders.OutOfTime: "out of time"}
        reason = str(error).replace("\n", " ").replace("|", "/")
        entries[label]["why"] = f"{words[type(error)]}{': ' if reason else ''}{reason}"
        print(f"  {label}: {entries[label]['why']}", file=sys.stderr)

    expected = (contenders.Missing, contenders.Failed, contenders.OutOfTime)
    try:
        for entry in row.entries:
            if any(word in entry.label for word in options.without):
                continue
            entries[entry.label] = {"model": entry.model, "work": str(entry.work), "cache": entry.cache, "turns": []}
            try:
                file = model(entry.model, options)
                running[entry.label] = contenders.begin(entry, file, options, deadline)
            except expected as error:
                gone(entry.label, error)
        for round in range(1 if memory else options.rounds):
            for label in list(running):
                try:
                    done = turn(running[label], options, probe, deadline, memory)
                except expected as error:
                    gone(label, error)
                    continue
                entries[label] |= {"about": running[label].about}
                entries[label]["turns"].append(done)
                print(f"  {round + 1} {label}: {summary.speed(done):.1f} tokens/s", file=sys.stderr)
    finally:
        for contender in running.values():
            contender.close()
    present = [wanted for wanted in row.ratios if {wanted.over, wanted.under} <= entries.keys()]
    found = [summary.ratio(wanted, entries) for wanted in present]
    return {"name": row.name, "kind": row.kind, "entries": entries, "ratios": [one for one in found if one]}


def main() -> int:
    options = arguments()
    chosen = rows.pick(rows.table(16 if options.quick else 128), options.only)
    if not chosen:
        print(f"no row has one of {options.only} in its name; --list prints them", file=sys.stderr)
        return 2
    if options.list:
        for row in chosen:
            print(f"{row.name}: {', '.join(entry.label for entry in row.entries)}")
        return 0
    options.scratch.mkdir(parents=True, exist_ok=True)
    probe = machine.Probe(options.scratch, options.threads)
    if probe.why is not None:
        print(f"no probe of the machine's state: {probe.why}", file=sys.stderr)
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    record = {
        "began": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "versions": contenders.versions(options),
        "settings": settings,
        "rows": [],
    }
    for row in chosen:
        print(row.name, file=sys.stderr)
        record["rows"].append(measure(row, options, probe))
        # After each row: a run that is stopped keeps what it has.
        write(options.out, record)
    print((options.out / "results.md").read_text())
    return 0


def write(folder: Path, record: dict) -> None:
    (folder / "results.json").write_text(json.dumps(record, indent=1))
    settings, found = record["settings"], record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    head = (
        f"{record['began']}, {found.get('processor', 'processor unknown')}, {settings['threads']} threads, "
        f"{settings['rounds']} rounds of {settings['repeats']}. {versions}.\n\n"
    )
    (folder / "results.md").write_text(head + summary.markdown(record["rows"]))


if __name__ == "__main__":
    sys.exit(main())
