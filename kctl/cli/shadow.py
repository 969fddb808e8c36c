"""`kctl shadow`: decide beside a live controller, and say where the two differ."""

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.console import Console

from kctl.cli.exits import Exit, clear_errors, fail
from kctl.cli.questions import EXPECTED, AsJson, ConfigFile, Debug, ZooKeeper, access
from kctl.insight.following import follow
from kctl.insight.shadow import Finding, Report, Verdict
from kctl.insight.snapshot import Access

BAD = (Verdict.DIVERGED, Verdict.STUCK, Verdict.ABSENT)
WORDS = {
    Verdict.DIVERGED: "the controller decided otherwise",
    Verdict.STUCK: "the controller does not react",
    Verdict.ABSENT: "there is no controller",
    Verdict.EXPLAINED: "a known deviation",
}


def register(app: typer.Typer) -> None:
    app.command(
        name="shadow",
        epilog="Example: kctl shadow -z zk1:2181/kafka --for 3600. Exit codes: 0 all decisions "
        "agreed, 1 a divergence, 6 the controller is absent or does not react.",
    )(shadow_command)


def shadow_command(
    zookeeper: ZooKeeper = None,
    *,
    config: ConfigFile = None,
    for_s: Annotated[
        float | None,
        typer.Option("--for", min=0, help="End after so many seconds.", metavar="SECONDS"),
    ] = None,
    until_divergence: Annotated[
        bool, typer.Option("--until-divergence", help="End at the first divergence.")
    ] = False,
    stuck_after: Annotated[
        float,
        typer.Option(min=1, help="No reaction for so long is reported.", metavar="SECONDS"),
    ] = 30.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Follow a live cluster and compare its controller's decisions with our own. Reads only."""
    report = Report()
    with clear_errors(EXPECTED, debug=debug):
        try:
            asyncio.run(
                _watch(
                    access(zookeeper, config),
                    report,
                    for_s=for_s,
                    stuck_after_s=stuck_after,
                    until_divergence=until_divergence,
                    as_json=as_json,
                )
            )
        except KeyboardInterrupt:
            pass  # the usual end
    if as_json:
        typer.echo(json.dumps(summary(report)))
    else:
        _print(report)
    if report.count(Verdict.DIVERGED):
        raise fail(Exit.FAILED, f"{report.count(Verdict.DIVERGED)} decisions differ")
    if any(f.verdict in BAD for f in report.findings):
        raise fail(Exit.NO_REACTION, "the controller was absent or did not react")


async def _watch(
    where: Access,
    report: Report,
    *,
    for_s: float | None,
    stuck_after_s: float,
    until_divergence: bool,
    as_json: bool,
) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    async for finding in follow(where, stuck_after_s=stuck_after_s, for_s=for_s):
        report.add(finding)
        if not as_json:
            _tell(console, finding)
        if until_divergence and finding.verdict is Verdict.DIVERGED:
            return


def _tell(console: Console, finding: Finding) -> None:
    if finding.verdict is Verdict.AGREED:
        if finding.decisions:
            made = ", ".join(f"{count} {kind}" for kind, count in finding.decisions.items())
            console.print(f"agreed: {made}", markup=False)
        return
    console.print(f"{finding.verdict.value}: {WORDS[finding.verdict]}", markup=False)
    for line in finding.trace or map(str, finding.differences):
        console.print(f"  {line}", markup=False)


def summary(report: Report) -> dict[str, Any]:
    return {
        "agreed": {"settled": report.settled, "decisions": report.decisions},
        "longest_s": round(report.longest_s, 3),
        "diverged": report.count(Verdict.DIVERGED),
        "explained": report.count(Verdict.EXPLAINED),
        "stuck": report.count(Verdict.STUCK),
        "absent": report.count(Verdict.ABSENT),
        "findings": [_as_json(finding) for finding in report.findings],
    }


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "verdict": finding.verdict.value,
        "differences": [
            {"key": d.key, "kctl": d.ours, "found": d.found, "deviation": d.deviation}
            for d in finding.differences
        ],
        "trace": list(finding.trace),
    }


def _print(report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    rows: dict[str, object] = {f"agreed: {kind}": n for kind, n in report.decisions.items()}
    rows["times settled in agreement"] = report.settled
    rows["longest time to settle"] = f"{report.longest_s:.1f} s"
    rows |= {verdict.value: report.count(verdict) for verdict in WORDS}
    for name, value in rows.items():
        console.print(f"{name:<40}{value}", markup=False)
