"""A page about one function: the diff, which branches were taken, its curves, its speed. One file, nothing to fetch."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from string import Template
from typing import TYPE_CHECKING, Any

from if2where.units import duration, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title: if2where</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.verdict { font-weight: 600; } .ok { color: #1a7f37; } .bad { color: #b42318; }
pre { background: #f6f8fa; padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; font-size: .85rem; line-height: 1.45; }
.add { color: #1a7f37; } .del { color: #b42318; } .hunk { color: #57606a; }
table { border-collapse: collapse; font-size: .92rem; } th, td { padding: .25rem .8rem; border-bottom: 1px solid #d8dee4; text-align: right; }
th:first-child, td:first-child { text-align: left; } .text { text-align: left !important; } td.text { font-family: ui-monospace, monospace; }
svg { max-width: 100%; height: auto; }
p.small { color: #57606a; font-size: .88rem; }
</style>
<h1>$title</h1>
<p class="small">$path</p>
<p class="verdict $verdict_class">$verdict</p>
$differences
<h2>The conversion</h2>
<pre>$diff</pre>
<h2>The tests, and how many samples took either side</h2>
$coverage
<h2>Along each input</h2>
$curves
<h2>Speed</h2>
$speed
</html>
""")


def page(path: str, diff: str, report: dict[str, Any]) -> str:
    """The page as HTML. ``report`` holds ``verification``, ``curves`` and ``bench`` as plain data."""
    verification, bench = report["verification"], report["bench"]
    ok = verification["ok"]
    compared = ", ".join(verification["compared"]) or "nothing"
    verdict = "Equal" if ok else "Not verified"
    return _PAGE.substitute(
        title=html.escape(verification["name"]),
        path=html.escape(path),
        verdict_class="ok" if ok else "bad",
        verdict=html.escape(f"{verdict} in {verification['samples']} samples. Compared: {compared}."),
        differences=_differences(verification["differences"]),
        diff="\n".join(map(_diff_line, diff.splitlines())),
        coverage=_coverage(verification["tests"]),
        curves=_curves(report["curves"]),
        speed=_speed(bench["timings"]),
    )


def _differences(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return ""
    rows = "".join(
        f"<tr><td>{html.escape(d['what'])}</td><td>{'' if d['sample'] is None else d['sample']}</td>"
        f"<td>{html.escape(d['got'])}</td><td>{html.escape(d['want'])}</td></tr>"
        for d in found[:20]
    )
    head = "<tr><th>what</th><th>sample</th><th>converted</th><th>loop</th></tr>"
    return f"<table>{head}{rows}</table>"


def _diff_line(line: str) -> str:
    kind = "hunk" if line.startswith(("+++", "---", "@@")) else {"+": "add", "-": "del"}.get(line[:1], "")
    text = html.escape(line)
    return f'<span class="{kind}">{text}</span>' if kind else text


def _coverage(tests: Sequence[dict[str, Any]]) -> str:
    if not tests:
        return "<p>It tests no tensor.</p>"

    def count(n: int) -> str:
        return f"<td>{n}</td>" if n else '<td class="bad">none</td>'

    rows = "".join(
        f'<tr><td>{t["line"]}</td><td class="text">{html.escape(t["text"])}</td>{count(t["true"])}{count(t["false"])}</tr>'
        for t in tests
    )
    return f'<table><tr><th>line</th><th class="text">test</th><th>true</th><th>false</th></tr>{rows}</table>'


def _curves(curves: Sequence[dict[str, Any]]) -> str:
    if not curves:
        return "<p>No input is a single number.</p>"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3 * len(curves)), layout="constrained")
    axes = figure.subplots(len(curves), 2, squeeze=False)
    for (left, right), curve in zip(axes, curves, strict=True):
        _draw(left, curve, "values", "sum of the outputs")
        _draw(right, curve, "gradients", f"gradient by {curve['name']}")
    note = "<p class='small'>One input at a time, the others as in one sample. Dotted: where a test comes out otherwise.</p>"
    return _svg(figure) + note


def _draw(axes: Axes, curve: dict[str, Any], what: str, title: str) -> None:
    x = curve["points"]
    axes.plot(x, _gaps(curve[what]), color="#0969da", linewidth=4, alpha=0.35, label="loop")
    axes.plot(x, _gaps(curve[f"converted_{what}"]), color="#cf222e", linewidth=1.2, label="converted, under vmap")
    for at in curve["branch_points"]:
        axes.axvline(at, color="#57606a", linestyle=":", linewidth=0.8)
    axes.set_xlabel(curve["name"])
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [v if v is not None and math.isfinite(v) else math.nan for v in values]


def _speed(timings: Sequence[dict[str, Any]]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, what, title in zip(
        figure.subplots(1, 2), ("forward", "backward"), ("one call", "call and backward"), strict=True
    ):
        for way in dict.fromkeys(t["way"] for t in timings):
            rows = [(t["samples"], t[what] * 1e3) for t in timings if t["way"] == way and t[what] is not None]
            if rows:
                axes.plot(*zip(*rows, strict=True), marker="o", markersize=3.5, label=way)
        axes.set(xscale="log", yscale="log", xlabel="samples", title=title)
        axes.set_ylabel("milliseconds")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    head = "<tr><th>way</th><th>samples</th><th>one call</th><th>and backward</th><th>peak memory</th><th></th></tr>"
    rows_ = "".join(
        f"<tr><td>{t['way']}</td><td>{t['samples']:,}</td><td>{duration(t['forward'])}</td><td>{duration(t['backward'])}</td>"
        f"<td>{size(t['memory'])}</td>"
        f'<td class="text">{html.escape(t["note"])}</td></tr>'
        for t in timings
    )
    return f"{_svg(figure)}<table>{head}{rows_}</table>"


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
