"""From the samples of a run to ratios with their spread, and to a table."""

from statistics import median

from rows import Ratio

# Two turns of one round whose read bandwidths differ by more were not measured on the same machine, so to speak.
MIXED = 1.25


def speed(turn: dict) -> float:
    """Tokens per second of one turn: the median of its repeats."""
    return median(turn["samples"])


def ratio(wanted: Ratio, entries: dict[str, dict]) -> dict | None:
    """Each round's value, their median, least and most, and how many rounds were mixed. None where somebody is absent."""
    labels = [label for label in (wanted.over, wanted.under, wanted.zero) if label is not None]
    taking_part = [entries[label] for label in labels]
    if any(not entry["turns"] for entry in taking_part):
        return None
    values, mixed = [], 0
    for turns in zip(*(entry["turns"] for entry in taking_part)):
        match wanted.kind:
            case "speed":
                over, under = (speed(turn) for turn in turns)
                values.append(over / under)
            case "memory":
                over, under = (turn["peak"] for turn in turns)
                values.append(over / under)
            case "growth":
                far, near, zero = (1 / speed(turn) for turn in turns)
                values.append((far - zero) / (near - zero))
        read = [turn["machine"]["read_gbs"] for turn in turns if turn.get("machine")]
        mixed += bool(read) and max(read) > MIXED * min(read)
    goal = {"goal": wanted.goal, "kind": wanted.kind, "over": wanted.over, "under": wanted.under}
    return {**goal, "values": values, "median": median(values), "min": min(values), "max": max(values), "mixed": mixed}


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: list[float]) -> str:
    """Median and, of several, least and most."""
    if len(values) == 1:
        return number(values[0])
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"


def markdown(results: list[dict]) -> str:
    """A line for each contender of each row."""
    head = ["row", "who", "tokens/s, or MiB", "ratio", "goal", "mixed", "read GB/s", "fork-join us"]
    lines = [head, ["---", "---", *["--:"] * (len(head) - 2)]]
    for row in results:
        name = row["name"]
        for label, entry in row["entries"].items():
            turns = entry["turns"]
            found = ratio_of(row, label)
            if not turns:
                lines.append([name, label, entry.get("why", "not measured"), "", "", "", "", ""])
            else:
                values = [turn["peak"] / 2**20 for turn in turns] if row["kind"] == "memory" else [speed(turn) for turn in turns]
                states = [turn["machine"] for turn in turns if turn.get("machine")]
                late = f"; {entry['why']}" if "why" in entry else ""
                lines.append(
                    [
                        name,
                        label,
                        spread(values) + late,
                        spread(found["values"]) if found else "",
                        goal(found) if found else "",
                        f"{found['mixed']} of {len(found['values'])}" if found else "",
                        spread([state["read_gbs"] for state in states]) if states else "",
                        spread([state["fork_join_us"] for state in states]) if states else "",
                    ]
                )
            name = ""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def ratio_of(row: dict, label: str) -> dict | None:
    """The ratio that a contender's line shows: over it where kvlab is compared with it, else of it over the first."""
    for found in row["ratios"]:
        if found["kind"] == "growth" or found["under"] == next(iter(row["entries"])):
            shown = found["over"]
        else:
            shown = found["under"]
        if shown == label:
            return found
    return None


def goal(found: dict) -> str:
    """What is wanted, and whether the median has it."""
    if found["goal"] is None:
        return ""
    most = found["kind"] in ("memory", "growth")
    there = found["median"] <= found["goal"] if most else found["median"] >= found["goal"]
    return f"{'<=' if most else '>='} {number(found['goal'])} {'yes' if there else 'no'}"
