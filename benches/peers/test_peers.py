"""Tests that need no peer: `python3 -m unittest discover -s benches/peers`."""

import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

import contenders
import rows
import run
import summary
from rows import Entry, Ratio, Work

HERE = Path(__file__).resolve().parent


def turns(*speeds, read=None):
    states = read or [40.0] * len(speeds)
    return {"turns": [{"samples": [s], "machine": {"read_gbs": g, "fork_join_us": 0.1}} for s, g in zip(speeds, states)]}


class Ratios(unittest.TestCase):
    def test_each_round_is_compared_with_itself(self):
        # The machine doubles its pace in round 2: medians alone would say 20 / 15.
        entries = {"kvlab": turns(10, 20, 22), "other": turns(5, 10, 15)}
        found = summary.ratio(Ratio("kvlab", "other", 1.9), entries)
        self.assertEqual([round(value, 3) for value in found["values"]], [2, 2, 1.467])
        self.assertEqual((found["median"], found["max"]), (2, 2))

    def test_a_turn_counts_with_the_median_of_its_repeats(self):
        self.assertEqual(summary.speed({"samples": [1.0, 9.0, 2.0]}), 2.0)

    def test_growth_leaves_out_what_depth_0_costs(self):
        # 10 ms, and 1 ms for each 1024 rows: 12 and 18 ms.
        entries = {"0": turns(100), "near": turns(1 / 0.012), "far": turns(1 / 0.018)}
        found = summary.ratio(Ratio("far", "near", 4.4, "growth", "0"), entries)
        self.assertAlmostEqual(found["median"], 4)
        self.assertEqual(summary.goal(found), "<= 4.4 yes")

    def test_rounds_in_two_states_of_the_machine_are_counted(self):
        entries = {"kvlab": turns(1, 1, read=[44, 44]), "other": turns(1, 1, read=[45, 70])}
        self.assertEqual(summary.ratio(Ratio("kvlab", "other"), entries)["mixed"], 1)

    def test_memory_is_peak_by_peak_and_less_is_wanted(self):
        held = lambda mib: {"turns": [{"samples": [1], "peak": mib << 20}]}  # noqa: E731
        found = summary.ratio(Ratio("kvlab", "other", 1.1, "memory"), {"kvlab": held(300), "other": held(200)})
        self.assertEqual((found["median"], summary.goal(found)), (1.5, "<= 1.1 no"))

    def test_who_is_absent_has_a_line_and_no_ratio(self):
        entries = {"kvlab": turns(10), "other": {"turns": [], "why": "missing: not installed"}}
        self.assertIsNone(summary.ratio(Ratio("kvlab", "other"), entries))
        table = summary.markdown([{"name": "a row", "kind": "speed", "entries": entries, "ratios": []}])
        self.assertIn("|  | other | missing: not installed |", table)


class Rows(unittest.TestCase):
    def test_names_are_unique_and_ratios_speak_of_their_entries(self):
        table = rows.table()
        self.assertEqual(len({row.name for row in table}), len(table))
        for row in table:
            labels = {entry.label for entry in row.entries}
            self.assertEqual(len(labels), len(row.entries), row.name)
            for ratio in row.ratios:
                self.assertLessEqual({ratio.over, ratio.under}, labels, row.name)

    def test_words_and_patterns_pick(self):
        names = lambda *only: [row.name for row in rows.pick(rows.table(), list(only))]  # noqa: E731
        self.assertEqual(names("1.1b/Q8_0/pp"), ["1.1b/Q8_0/pp512/f16"])
        self.assertTrue(all(name.endswith("@8192/4bit") for name in names("*@8192/4bit")))
        self.assertEqual(len(names("*@8192/4bit")), 2)
        self.assertEqual(names("nothing like it"), [])


class Workers(unittest.TestCase):
    """A worker that is a few lines of text, through the real protocol."""

    def worker(self, load: str):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        program = folder / "fake.py"
        program.write_text(f"import sys, time\nsys.path.insert(0, {str(HERE)!r})\nimport worker\n{load}\nworker.serve(load)\n")
        self.enterContext(unittest.mock.patch.dict(contenders.WORKERS, {"fake": str(program)}))
        options = SimpleNamespace(scratch=folder, python=sys.executable, threads=1)
        entry = Entry("fake", "fake", "m", Work("tg", 10), "f16")
        made = contenders.begin(entry, Path("m.gguf"), options, time.monotonic() + 20)
        self.addCleanup(made.close)
        return made

    FAKE = (
        "class Fake:\n about = {}\n def __init__(self, **_): print('noise of a library')\n"
        " def rewind(self): pass\n def run(self): time.sleep(DELAY)\ndef load(): return Fake"
    )

    def test_samples_are_tokens_per_second_without_the_first(self):
        made = self.worker(self.FAKE.replace("DELAY", "0.05"))
        samples = made.round(3, time.monotonic() + 20)
        self.assertEqual(len(samples), 3)
        # 10 tokens in at least 50 ms, and hardly in 10 s.
        self.assertTrue(all(1 < sample <= 200 for sample in samples), samples)
        self.assertGreater(made.peak, 0)

    def test_a_peer_that_cannot_be_imported_is_missing(self):
        with self.assertRaisesRegex(contenders.Missing, "no_such_peer"):
            self.worker("def load(): import no_such_peer")

    def test_a_round_that_takes_too_long_is_out_of_time(self):
        made = self.worker(self.FAKE.replace("DELAY", "30"))
        began = time.monotonic()
        with self.assertRaises(contenders.OutOfTime):
            made.round(1, began + 0.5)
        self.assertLess(time.monotonic() - began, 15)

    def test_what_goes_wrong_inside_is_said(self):
        made = self.worker(self.FAKE.replace("time.sleep(DELAY)", "raise ValueError('boom')"))
        with self.assertRaisesRegex(contenders.Failed, "ValueError: boom"):
            made.round(1, time.monotonic() + 20)


class Turns(unittest.TestCase):
    def measured(self, **speeds) -> tuple[dict, list[str]]:
        """A row of contenders that say their name and give the next of their speeds; a speed may be an error."""
        said = []

        class Fake:
            def __init__(self, entry, *_):
                self.label, self.speeds, self.about = entry.label, iter(speeds[entry.label]), {}

            def round(self, *_):
                said.append(self.label)
                speed = next(self.speeds)
                if isinstance(speed, Exception):
                    raise speed
                return [speed]

            def close(self):
                said.append(f"{self.label} closed")

        entries = tuple(Entry(label, "fake", "m", Work("pp", 1), "f16") for label in speeds)
        row = rows.Row("row", entries, (Ratio("a", "b", 2),))
        options = SimpleNamespace(limit=9, rounds=2, repeats=1, without=[])
        with unittest.mock.patch.multiple(contenders, begin=Fake), unittest.mock.patch.multiple(run, model=lambda *_: None):
            return run.measure(row, options, lambda: None), said

    def test_contenders_take_turns(self):
        result, said = self.measured(a=[8, 4], b=[2, 2])
        self.assertEqual(said, ["a", "b", "a", "b", "a closed", "b closed"])
        self.assertEqual(result["ratios"][0]["values"], [4, 2])

    def test_one_that_fails_leaves_the_others(self):
        result, said = self.measured(a=[8, 4], b=[2, contenders.Failed("gone | at last")])
        self.assertEqual(said, ["a", "b", "a", "b", "b closed", "a closed"])
        self.assertEqual(result["entries"]["b"]["why"], "failed: gone / at last")
        self.assertEqual([len(entry["turns"]) for entry in result["entries"].values()], [2, 1])
        self.assertEqual(result["ratios"][0]["values"], [4])


class CommandLine(unittest.TestCase):
    def test_a_word_that_fits_no_row_is_refused(self):
        ran = subprocess.run([sys.executable, HERE / "run.py", "--only", "nothing"], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("--list", ran.stderr)


if __name__ == "__main__":
    unittest.main()
