"""Makes docs/architecture.svg from docs/architecture.txt.

python docs/architecture.py

A box of the rows that an arrow meets is on the way of the data; a crate that none meets is a bar. An arrow of a box beside
the rows is at the right, others at the left; a box that is not at that edge of its row is met from above.
"""

import re
from html import escape
from itertools import count
from pathlib import Path
from textwrap import wrap
from types import SimpleNamespace

LEFT, RIGHT, BESIDE, END, GAP, PAD, LINE, CHAR = 190, 710, 750, 920, 12, 12, 16, 6.8
NO_BREAK = "\u00a0"
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 HEIGHT" width="940" height="HEIGHT" role="img"
  aria-labelledby="title">
  <!-- Made by architecture.py from architecture.txt. -->
  <title id="title">The floors of fewshot: imports point down, data goes WAYS</title>
  <marker id="head" refX="7" refY="3.5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 7,3.5 0,7z" fill="#b3541e"/></marker>
  <style>
    text { font-family: Helvetica, Arial, sans-serif; font-size: 13px; fill: #333 }
    .name { font-size: 15px; font-weight: bold; fill: #111 }
    .way { font-size: 12px; fill: #b3541e }
    rect { fill: #eef2f6; stroke: #8a97a6 }
    .path { fill: #fdeee3; stroke: #b3541e }
    .crate { fill: #e8f3ea; stroke: #5d8a68 }
    .bar { fill: #5d8a68; stroke: #5d8a68 }
    .bar + text, .bar + text .name { fill: #fff }
    .arrow { fill: none; stroke: #b3541e; stroke-width: 2; marker-end: url(#head) }
  </style>
  <rect width="940" height="HEIGHT" style="fill: #fff; stroke: none"/>"""

source = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
found = re.findall(r"^(rows|beside|below|arrows)\b.*\n((?:  .*\n)+)", source, re.M)
parts = {word: lines.splitlines() for word, lines in found}
ways = [re.match(r"\s*(\S+) -> (\S+)\s*(.*)", line).groups() for line in parts["arrows"]]


def read(line, met="module", unmet="module"):
    """A box: its name, two spaces or more, a text; or a text alone."""
    name, text = re.fullmatch(r"(?:(.*?)\s{2,})?(.*)", line.strip()).groups("")
    look = met if any(name in way[:2] for way in ways) else unmet
    wide = name and name + NO_BREAK * (len(name) // 2 + 1) + " "
    return SimpleNamespace(name=name, text=wide + text, look=look, pad=4 if look == "bar" else PAD)


def place(box, x, y, end):
    box.x, box.y, box.end = x, y, end
    box.lines = wrap(box.text, int((end - x - 2 * PAD) / CHAR), break_on_hyphens=False)
    box.high = 2 * box.pad + LINE * len(box.lines)


def meet(box, other, right):
    """Points from a box to the lane of an arrow."""
    x = box.end if right and box.x != BESIDE else box.x
    if x in (LEFT, RIGHT, BESIDE):
        return [(x, box.y + box.high * (1 if other.y < box.y else 2) // 3)]
    return [(x + (-30 if right else 30), y) for y in (box.y, box.y - 16)]


def drawn(box):
    svg = [f'<rect class="{box.look}" x="{box.x}" y="{box.y}" width="{box.end - box.x}" height="{box.high}" rx="4"/>']
    for y, line in enumerate(map(escape, box.lines)):
        line = re.sub(f"^(.*?){NO_BREAK}+ ?", r'<tspan class="name">\1</tspan>&#8194;', line)
        svg.append(f'<text x="{box.x + PAD}" y="{box.y + box.pad + 13 + LINE * y}">{line}</text>')
    return svg


rows = [[read(part, "path") for part in line.split("|")] for line in parts["rows"]]
beside, below = [read(line) for line in parts["beside"]], [read(line, "crate", "bar") for line in parts["below"]]
boxes = {box.name or box.text: box for box in sum(rows + [beside, below], [])}
arrows = [(boxes[a], boxes[b], label, boxes[a] in beside or boxes[b] in beside) for a, b, label in ways]

floors, y = rows + [[box] for box in below], 24
for row in floors:
    alike = [other for other in floors if len(other) == len(row)]
    widths = [sum(len(box.text) for box in column) for column in zip(*alike)]
    edges = [LEFT + (RIGHT + GAP - LEFT) * sum(widths[:i]) // sum(widths) for i in range(len(row) + 1)]
    for box, x, end in zip(row, edges, edges[1:]):
        place(box, x, y, END if box in below else end - GAP)
    above = any(len(meet(box, box, arrow[3])) > 1 for box in row for arrow in arrows if box in arrow[:2])
    y += 14 * above + 10 * (row[0] is below[0])
    high = max(box.high for box in row)
    for box in row:
        box.y, box.high = y, high
    y += high + GAP
top = boxes[re.search(r"^beside .*from (\S+)", source, re.M)[1]].y
high = (rows[-1][0].y + rows[-1][0].high + GAP - top) // len(beside)
for i, box in enumerate(beside):
    place(box, BESIDE, top + i * high, END)
    box.high = high - GAP

svg, taken, labels = sum(map(drawn, boxes.values()), []), [], []
for a, b, label, right in sorted(arrows, key=lambda arrow: -abs(arrow[0].y - arrow[1].y)):
    start, stop = meet(a, b, right), meet(b, a, right)
    low, up = sorted((start[-1][1], stop[-1][1]))
    lane = next(i for i in count() if all((i, right) != at or low >= u or up <= l for at, l, u in taken))
    taken.append(((lane, right), low, up))
    x = RIGHT + 20 - 8 * lane if right else LEFT - 30 + 8 * lane
    points = start + [(x, start[-1][1]), (x, stop[-1][1])] + stop[::-1]
    svg.append(f'<path class="arrow" d="M{" L".join("%d,%d" % point for point in points)}"/>')
    labels.append(((low + up) // 2, right, wrap(label, 25 if right else 20, break_on_hyphens=False)))
limit = {False: y, True: top - 4}
for middle, right, lines in sorted(labels, reverse=True):
    limit[right] = min(middle + 15 * len(lines) // 2, limit[right] - 4)
    at = f'x="{RIGHT + 28}"' if right else f'x="{LEFT - 38}" text-anchor="end"'
    for line in reversed(lines):
        svg.append(f'<text class="way" y="{limit[right] - 4}" {at}>{escape(line)}</text>')
        limit[right] -= 15
head = HEAD.replace("HEIGHT", str(y + 14)).replace("WAYS", ", ".join(f"from {a} to {b}" for a, b, _ in ways))
Path(__file__).with_suffix(".svg").write_text("\n  ".join([head, *svg]) + "\n</svg>\n", encoding="utf-8")
