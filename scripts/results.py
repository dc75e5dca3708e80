#!/usr/bin/env python3
"""results.py [--check]: makes docs/results.md and pictures of bench/results/*.json, brings
cited figures up to date, and draws the layers. With --check it writes nothing, names what is
stale, and then exits with 1.

A page cites a figure by a comment right behind it:
`1.022<!--=replay/geometric means/stitched/1-->`. The first part names the record. Each further part
but the last leads to the next line of its output that begins with these words (bars of tables do
not count); the last is the number of a word behind that. The figure keeps its decimals.
tests/house/results_test.cc reads citations by the same rule.
"""
import json
import pathlib
import re
import sys

import draw_house
import draw_lags
import draw_ranks
import draw_reserved
import draw_tradeoff

ROOT = pathlib.Path(__file__).resolve().parents[1]
CITED = re.compile(r"([\d.,]*\d)<!--=([^>]*)-->")
PAGE = ROOT / "docs/results.md"
ORDER = ["replay", "snapshots", "small_program", "generated", "pages", "fidelity", "pytorch_allocator", "pytorch_allocator_2_12", "targets",
         "tradeoff", "constants", "robson", "instructions", "planning", "host_peers", "host_pairs",
         "preload", "preload_pypi", "pool", "two_threads", "parallel", "verdict", "recorder", "library_size",
         "large_files", "viewer", "lab_peers", "python", "metadata", "operators",
         "more_operators", "vulkan", "vulkan_vectors", "gradients", "training", "families", "gpt_losses",
         "fsdp", "rank_weights",
         "rank_memory", "rank_network", "overlap", "ranks", "kills", "fleet"]


def records():
    found = {path.stem: json.loads(path.read_text(encoding="utf-8"))
             for path in (ROOT / "bench/results").glob("*.json")}
    return {name: found[name] for name in sorted(
        found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))}


def words(line):
    return " ".join(line.replace("|", " ").split())


def figure(reference, found):
    """The number that a reference names, as the program printed it."""
    name, *way, number = reference.split("/")
    lines = [words(line) for line in found[name]["output"]]
    at = -1
    for part in way:
        at = next(i for i in range(at + 1, len(lines)) if f"{lines[i]} ".startswith(f"{part} "))
    return lines[at][len(way[-1]):].split()[int(number) - 1]


def rounded(printed, decimals):
    """A printed number with so many decimals, thousands apart as it was printed."""
    value = re.search(r"\d[\d,]*\.?\d*", printed)[0]
    group = "," if "," in value else ""
    return format(float(value.replace(",", "")), f"{group}.{decimals}f")


def refreshed(page, text, found):
    def replace(match):
        old, reference = match.groups()
        try:
            printed = figure(reference, found)
            new = rounded(printed, len(old.partition(".")[2]))
        except (KeyError, StopIteration, IndexError, ValueError, TypeError):
            sys.exit(f"{page}: no record in bench/results has the figure {reference}")
        return f"{new}<!--={reference}-->"
    return CITED.sub(replace, text)


def conditions(record):
    given = record["conditions"]
    if given.get("exact"):
        text = "The same on every machine and under any load."
    else:
        parts = [given["date"], given["machine"], given["compiler"]]
        parts += [f"{key}: {given[key]}" for key in ("threads", "load") if key in given]
        text = "; ".join(parts) + "."
    if "peers" in given:
        text += f" Beside: {given['peers']}."
    if given.get("kept"):
        text += " An earlier run; its output was shortened to this table."
    return text


def page(found):
    out = ["# Results", "",
           "Every measured figure of these pages, with its conditions and the command that prints it. "
           "Made by `scripts/results.py`", "from the records in `bench/results`, which "
           "`bench/run.py --keep build NAME` writes; `make bench` runs all. Other pages cite",
           "figures from here, and a test compares them. What a figure means: [figures.md](figures.md). "
           "\"load\" is the machine's average",
           "load when the program began: compare times within one record only.", "",
           "![Bars for each of seven traces: reserved peak over live peak of caching, expandable and "
           "stitched.](reserved.svg)", ""]
    for name, record in found.items():
        title = record["title"][0].upper() + record["title"][1:]
        out += [f"## {name}", "", f"{title}. `{record['command']}`", "", conditions(record), ""]
        table = record["output"][0].startswith("|")
        out += record["output"] if table else ["```text", *record["output"], "```"]
        out.append("")
    return "\n".join(out)


def main(check):
    found = records()
    made = {PAGE: page(found),
            ROOT / "docs/reserved.svg": draw_reserved.drawn(found["replay"]["output"]),
            ROOT / "docs/house.svg":
                draw_house.drawn((ROOT / "docs/architecture.md").read_text(encoding="utf-8")),
            ROOT / "docs/stitched_by_lag.svg": draw_lags.drawn(found["generated"]["output"]),
            ROOT / "docs/stitched_tradeoff.svg": draw_tradeoff.drawn(found["tradeoff"]["output"]),
            ROOT / "docs/ranks.svg": draw_ranks.drawn(found["ranks"]["output"])}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if path != PAGE:
            made[path] = refreshed(path.relative_to(ROOT), path.read_text(encoding="utf-8"), found)
    changed = [path for path, text in made.items()
               if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        if not check:
            path.write_text(made[path], encoding="utf-8")
        print(f"{'stale' if check else 'changed'}: {path.relative_to(ROOT)}")
    return bool(check and changed)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
