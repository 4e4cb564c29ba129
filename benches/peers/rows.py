"""The table, as data: which models, work and caches, who takes part, and which ratios are read from it.

A row is measured by one interleaved run of its contenders. Names read `model/weights/work/cache`; rows of kvlab alone
end in `own`. `goal` is the least ratio that the project wants (the most, for `growth` and `memory`)."""

from dataclasses import dataclass, field, replace
from fnmatch import fnmatch

CPU = ("kvlab", "llama.cpp")
CACHES = {
    # name in the table: (kvlab's, llama.cpp's)
    "f16": ("f16", "f16"),
    "8bit": ("int8", "q8_0"),
    "4bit": ("int4", "q4_0"),
}


@dataclass(frozen=True)
class Work:
    """`pp`: `n` tokens of a prompt behind `depth`; `tg`: `n` tokens one by one behind `depth`; `none`: the same without
    a cache, so that each computes everything before it; `memory`: `tg`, and the peak of the process counts."""

    kind: str
    n: int
    depth: int = 0

    def __str__(self) -> str:
        behind = f"@{self.depth}" if self.depth else ""
        return f"{self.kind}{'' if self.kind == 'memory' else self.n}{behind}"


@dataclass(frozen=True)
class Entry:
    """One contender of a row. `program` is `kvlab`, `llama.cpp` or `torch`; `cache` is in its own words."""

    label: str
    program: str
    model: str
    work: Work
    cache: str
    sets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ratio:
    """Speed of `over` by that of `under`, both labels; or for `growth`, with three labels of works at depth 0, a
    depth and a larger one, by how much time per token grows between the last two, each less that at depth 0; or for
    `memory`, the peak of `over` by that of `under`."""

    over: str
    under: str
    goal: float | None = None
    kind: str = "speed"
    zero: str | None = None


@dataclass(frozen=True)
class Row:
    name: str
    entries: tuple[Entry, ...]
    ratios: tuple[Ratio, ...] = ()
    kind: str = "speed"
    note: str = field(default="", compare=False)


def against(
    model: str,
    weights: str,
    work: Work,
    cache: str,
    torch: tuple[str, ...] = (),
    goals: dict | None = None,
    precision: str | None = None,
) -> Row:
    """kvlab against the others on the same file; with a `precision`, with that `backend.matmul_precision`."""
    ours, theirs = CACHES[cache]
    file = f"{model}.{weights}"
    sets = (f"backend.matmul_precision={precision}",) if precision else ()
    entries = [Entry("kvlab", "kvlab", file, work, ours, sets)]
    if work.kind != "none":
        entries.append(Entry("llama.cpp", "llama.cpp", file, work, theirs))
    entries += [Entry(f"torch {dtype}", "torch", file, work, dtype) for dtype in torch]
    if work.kind == "none":
        entries[0] = replace(entries[0], cache="none")
    goals = goals or {}
    kind = "memory" if work.kind == "memory" else "speed"
    ratios = [Ratio("kvlab", other.label, goals.get(other.label), kind) for other in entries[1:]]
    name = f"{model}/{weights}/{work}/{'none' if work.kind == 'none' else cache}"
    name += f"/{precision}" if precision else ""
    return Row(name, tuple(entries), tuple(ratios), kind)


def own(model: str, weights: str, work: Work, caches: dict[str, tuple[str, tuple[str, ...], float | None]]) -> Row:
    """Several caches of kvlab's over its own f16 one. `caches`: label: (format, settings, goal)."""
    file = f"{model}.{weights}"
    entries = [Entry("f16", "kvlab", file, work, "f16")]
    entries += [Entry(label, "kvlab", file, work, cache, sets) for label, (cache, sets, _) in caches.items()]
    ratios = [Ratio(label, "f16", goal) for label, (_, _, goal) in caches.items()]
    return Row(f"{model}/{weights}/{work}/own", tuple(entries), tuple(ratios))


def growth(model: str, weights: str, n: int, depths: tuple[int, int], goal: float) -> Row:
    """Whether time per token grows in proportion with the depth."""
    works = [Work("tg", n, depth) for depth in (0, *depths)]
    entries = tuple(Entry(str(work), "kvlab", f"{model}.{weights}", work, "f16") for work in works)
    zero, near, far = (entry.label for entry in entries)
    return Row(f"{model}/{weights}/growth/own", entries, (Ratio(far, near, goal, "growth", zero),))


def table(n_gen: int = 128) -> list[Row]:
    """All rows. `n_gen` tokens are generated where speed is measured, less where each costs a whole prompt."""
    s, b = "smollm2", "1.1b"
    pp512, pp2048 = Work("pp", 512), Work("pp", 2048)
    tg = {depth: Work("tg", n_gen, depth) for depth in (0, 2048, 8192)}
    both = ("bf16", "f32")

    def llama(goal):
        return {"llama.cpp": goal}

    return [
        against(s, "Q4_1", pp512, "f16", goals=llama(5)),
        against(s, "Q4_0", pp512, "f16", goals=llama(1.7)),
        against(s, "Q8_0", pp512, "f16"),
        against(s, "F16", pp512, "f16", both, llama(2.3)),
        against(s, "BF16", pp512, "f16", ("bf16",), llama(2.3)),
        against(s, "Q4_1", pp512, "f16", goals=llama(5), precision="medium"),
        against(s, "Q4_0", pp512, "f16", goals=llama(1.7), precision="medium"),
        against(s, "BF16", pp512, "f16", ("bf16",), llama(2.3), "medium"),
        against(s, "Q4_1", pp2048, "f16"),
        against(s, "Q4_1", pp2048, "8bit"),
        against(s, "Q4_1", pp2048, "4bit"),
        against(s, "Q4_0", pp2048, "f16", goals=llama(1.9)),
        against(s, "F16", pp2048, "f16", ("bf16",)),
        own(s, "Q4_0", pp2048, {"int8": ("int8", (), 0.95), "int4": ("int4", (), 0.95)}),
        against(s, "Q4_1", tg[0], "f16", goals=llama(1.8)),
        against(s, "Q4_0", tg[0], "f16", goals=llama(1.3)),
        against(s, "Q8_0", tg[0], "f16"),
        against(s, "F16", tg[0], "f16", both, llama(1.3)),
        against(s, "BF16", tg[0], "f16", ("bf16",)),
        against(s, "Q4_1", tg[2048], "f16"),
        against(s, "Q4_1", tg[2048], "8bit"),
        against(s, "Q4_1", tg[2048], "4bit"),
        against(s, "Q4_0", tg[2048], "f16", goals=llama(1.8)),
        against(s, "Q4_0", tg[2048], "8bit", goals=llama(2.6)),
        against(s, "Q4_0", tg[2048], "4bit", goals=llama(4.5)),
        against(s, "F16", tg[2048], "f16", both),
        against(s, "Q4_1", tg[8192], "f16"),
        against(s, "Q4_1", tg[8192], "8bit"),
        against(s, "Q4_1", tg[8192], "4bit"),
        against(s, "Q4_0", tg[8192], "f16", goals=llama(2.5)),
        against(s, "Q4_0", tg[8192], "8bit", goals=llama(4.2)),
        against(s, "Q4_0", tg[8192], "4bit", goals=llama(9)),
        against(s, "F16", tg[8192], "f16", both),
        own(
            s,
            "Q4_0",
            tg[8192],
            {
                "int8": ("int8", (), 1.25),
                "int4": ("int4", (), 1.6),
                "f16 paged 16": ("f16", ("cache.layout=paged", "cache.page_size=16"), 0.8),
            },
        ),
        growth(s, "Q4_0", n_gen, (2048, 8192), 4.4),
        against(s, "F16", Work("none", 4, 128), "f16", both),
        against(s, "F16", Work("none", 4, 512), "f16", both),
        against(b, "Q4_0", pp512, "f16", goals=llama(1.6)),
        against(b, "Q8_0", pp512, "f16"),
        against(b, "F16", pp512, "f16", ("bf16",), {"torch bf16": 1.3}),
        against(b, "BF16", pp512, "f16", ("bf16",), {"torch bf16": 1.3}),
        against(b, "Q4_0", pp512, "f16", goals=llama(1.6), precision="medium"),
        against(b, "BF16", pp512, "f16", ("bf16",), {"torch bf16": 1.3}, "medium"),
        against(b, "Q4_0", tg[0], "f16", goals=llama(1.1)),
        against(b, "Q8_0", tg[0], "f16", goals=llama(1.1)),
        against(b, "F16", tg[0], "f16", ("bf16",), llama(1.1)),
        against(b, "Q4_0", tg[2048], "f16", goals=llama(1.6)),
        against(b, "Q4_0", tg[2048], "8bit", goals=llama(2.6)),
        against(b, "Q4_0", tg[2048], "4bit", goals=llama(3.3)),
        *(
            against(s, "Q4_1", Work("memory", 128, 8064), cache, goals=llama(1.1 if cache == "f16" else None))
            for cache in CACHES
        ),
    ]


def pick(rows: list[Row], only: list[str]) -> list[Row]:
    """Those whose name has one of the words in it, or fits one of the patterns. All, without any."""
    fits = lambda name: any(word in name or fnmatch(name, word) for word in only)  # noqa: E731
    return [row for row in rows if not only or fits(row.name)]
