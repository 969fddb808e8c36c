"""The report as one HTML page that needs nothing else: styles, plots and numbers are in it."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from bench.report_rows import NOISY, Row
from kctl.bench.analysis import Analysis

STYLE = """
:root { --ink:#1f2933; --soft:#52606d; --line:#e4e7eb; --kctl:#0b6e99; --bad:#b83280; --good:#2f855a }
* { box-sizing:border-box }
body { margin:0; font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif; color:var(--ink);
       background:#f5f7fa }
header { background:linear-gradient(120deg,#0b3c5d,#0b6e99); color:white; padding:2.2rem 1rem }
header p { margin:.2rem 0; opacity:.9 }
h1 { margin:0; font-size:1.7rem } h2 { font-size:1.2rem; margin:0 0 .7rem }
main, header > div { max-width:78rem; margin:auto }
main { padding:1rem }
section { background:white; border:1px solid var(--line); border-radius:10px; padding:1.2rem;
          margin:1rem 0; overflow-x:auto }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(11rem,1fr)); gap:.8rem;
         background:none; border:0; padding:0 }
.card { background:white; border:1px solid var(--line); border-radius:10px; padding:.9rem 1rem }
.card b { display:block; font-size:1.7rem; color:var(--kctl); line-height:1.2 }
.card small, .soft, caption { color:var(--soft) }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.82rem }
caption { text-align:left; padding-bottom:.4rem }
th, td { padding:.35rem .45rem; border-bottom:1px solid var(--line); text-align:right }
td { white-space:nowrap } th { color:var(--soft); font-weight:600; vertical-align:bottom } th:first-child, td:first-child { text-align:left }
tbody tr:hover { background:#f0f6fa }
.met { color:var(--good) } .missed, .noisy { color:var(--bad); font-weight:600 }
.ok, .wrong { border-left:5px solid var(--good) } .wrong { border-left-color:var(--bad) }
svg { width:100%; height:auto } summary { cursor:pointer; color:var(--kctl) }
"""


def page(
    title: str,
    about: Sequence[str],
    rows: Mapping[int, Sequence[Row]],
    analysis: Analysis,
    drawings: Mapping[str, tuple[str, str]],
) -> str:
    """`drawings`: by heading, a sentence and an SVG."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f"<header><div><h1>{escape(title)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in about),
        "</div></header><main>",
        _cards(rows),
        _convergence(analysis),
    ]
    drawn = [
        f"<section><h2>{escape(heading)}</h2><p class=soft>{escape(sentence)}</p>{drawing}</section>"
        for heading, (sentence, drawing) in drawings.items()
    ]
    # The largest cluster first: that is what people come for.
    tables = [_sizes(size, rows[size]) for size in sorted(rows, reverse=True)]
    parts += [*drawn[:1], *tables, *drawn[1:]]
    parts += [_changes(analysis), _growth(analysis), _events(analysis), "</main></html>"]
    return "\n".join(part for part in parts if part)


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cards(rows: Mapping[int, Sequence[Row]]) -> str:
    size = max((s for s, found in rows.items() if any(r.peer for r in found)), default=None)
    if size is None:
        return ""
    wanted = ("failover", "broker_failure", "controlled_shutdown", "delete_100x50")
    cards = [
        f"<div class=card><small>{escape(row.title)}</small><b>{escape(row.peer_text)}</b>"
        f"<small>{escape(row.kctl)} beside {escape(row.peer)}; goal {escape(row.peer_goal)}</small>"
        "</div>"
        for row in rows[size]
        if row.scenario in wanted and row.peer
    ]
    return f"<section class=cards>{''.join(cards)}</section>" if cards else ""


def _sizes(size: int, rows: Sequence[Row]) -> str:
    heads = ["scenario", "kctl", "range", "Kafka", "to Kafka", "goal", "floor", "to floor", "goal"]
    heads += ["CPU s", "peak MB", "ZK requests", "longest step", "noise"]
    shown = [
        (
            escape(row.title),
            row.kctl,
            row.kctl_range,
            row.peer or "-",
            _judged(row.peer_text, row.peer_met),
            row.peer_goal,
            row.floor or "-",
            _judged(row.floor_text, row.floor_met),
            row.floor_goal,
            row.cpu,
            row.memory,
            row.requests,
            row.step,
            f'<span class="{"noisy" if row.noise > NOISY else ""}">{row.noise:.0%}</span>',
        )
        for row in rows
    ]
    caption = (
        "Medians of one run; two numbers are kctl / Kafka. Noise is the share of the machine that"
        f" others took; above {NOISY:.0%} read the row with care. Goals are for 100,000 partitions."
    )
    return f"<section><h2>{size:,} partitions</h2>{_table(caption, heads, shown)}</section>"


def _judged(text: str, met: bool | None) -> str:
    kind = "" if met is None else "met" if met else "missed"
    return f'<span class="{kind}">{text}</span>'


def _convergence(analysis: Analysis) -> str:
    c = analysis.convergence
    if c is None:
        return ""
    pairs = f"{c.brokers:,} brokers, {c.partitions:,} partitions, {c.equal:,} beliefs equal"
    if c.converged:
        return (
            f"<section class=ok><h2>All brokers believe what ZooKeeper holds</h2>{pairs}</section>"
        )
    rows = [
        (str(m.broker), escape(f"{m.topic}-{m.partition}"), escape(m.believed), escape(m.truth))
        for m in c.examples
    ]
    wrong = f"{c.differing:,} differ, {c.missing:,} are missing, {c.left_over:,} are left over"
    return (
        "<section class=wrong><h2>Brokers believe something else than ZooKeeper holds</h2>"
        f"<p>{pairs}; {wrong}</p>"
        f"{_table('Some of them', ['broker', 'partition', 'believes', 'ZooKeeper'], rows)}</section>"
    )


def _changes(analysis: Analysis) -> str:
    if not analysis.changes:
        return ""
    rows = [
        (
            escape(f"{c.scenario.replace('_', ' ')} ({c.system})"),
            f"{c.partitions:,}",
            f"{c.before:.3f}",
            f"{c.after:.3f}",
            f"{c.ratio:.2f}",
            ("yes" if c.certain else "within the spread"),
        )
        for c in analysis.changes
    ]
    heads = ["scenario", "partitions", "before s", "after s", "ratio", "certain"]
    caption = "Certain: no repetition of one run reaches into the range of the other."
    return f"<section><h2>Before and after</h2>{_table(caption, heads, rows)}</section>"


def _growth(analysis: Analysis) -> str:
    if not analysis.growth:
        return ""
    rows = [
        (
            escape(f"{g.scenario.replace('_', ' ')} ({g.system})"),
            f"{g.partitions:,} to {g.to_partitions:,}",
            f"{g.ratio_a_doubling:.2f}",
        )
        for g in analysis.growth
    ]
    caption = "Time with twice the partitions, as a ratio; the goal is under 2.3."
    table = _table(caption, ["scenario", "partitions", "ratio"], rows)
    return f"<section><h2>Growth</h2>{table}</section>"


def _events(analysis: Analysis) -> str:
    if not analysis.events:
        return ""
    rows = [
        (
            escape(f"{e.scenario.replace('_', ' ')}: {e.event}"),
            f"{e.partitions:,}",
            f"{e.count:,}",
            *(f"{getattr(e.queued, q) * 1000:.2f}" for q in ("p50", "p99", "max")),
            *(f"{getattr(e.handled, q) * 1000:.2f}" for q in ("p50", "p95", "p99", "max")),
            f"{e.depth.max:.0f}",
            f"{e.zookeeper_requests:,}",
            "-" if e.us_a_row is None else f"{e.us_a_row:.1f}",
        )
        for e in analysis.events
    ]
    heads = ["event", "partitions", "count", "queued p50", "p99", "max"]
    heads += ["handled p50", "p95", "p99", "max", "deepest queue", "ZK requests", "µs a znode"]
    table = _table("Milliseconds, of kctl.", heads, rows)
    return (
        f"<section><h2>Events</h2><details><summary>{len(rows)} kinds</summary>{table}</details>"
        "</section>"
    )
