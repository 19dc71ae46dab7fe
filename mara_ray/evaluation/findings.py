"""What the summary says, in sentences.

A difference is called established only if its 95 % interval leaves out zero and its Holm-corrected p is
under 0.05; anything else is said to be open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mara_ray.evaluation.tables import CHAMPION, MEAN, OPTIMUM, REFERENCE, label

SIGNIFICANCE = 0.05
MINUS = "\N{MINUS SIGN}"


def established(difference: Mapping[str, Any]) -> bool:
    """Whether a difference may be claimed."""
    low, high = difference["ci"]
    return bool((low > 0 or high < 0) and difference["p_holm"] < SIGNIFICANCE)


def findings(summary: Mapping[str, Any]) -> list[str]:
    """Plain sentences for a reader who will not read the table."""
    methods = summary["methods"]
    sentences = []
    if CHAMPION in methods:
        sentences.append(_level(summary))
        if f"{CHAMPION}-{REFERENCE}" in summary["differences"]:
            sentences.append(_against_reference(summary))
        sentences += _against_the_rest(summary)
    sentences += _value_of_forecasts(summary)
    if OPTIMUM in summary["bounds"]:
        sentences.append(_room_left(summary))
    sentences.append(_luck(summary))
    return sentences


def points(value: float) -> str:
    """A signed number of points, with a typographic minus."""
    return f"{value:+.1f}".replace("-", MINUS)


def span(bounds: Sequence[float], signed: bool = False) -> str:
    """An interval in words."""
    low, high = (points(b) if signed else f"{b:.1f}".replace("-", MINUS) for b in bounds)
    return f"{low} to {high}"


def _sets(summary: Mapping[str, Any]) -> list[str]:
    return [name for name in next(iter(summary["methods"].values())) if name != MEAN]


def _level(summary: Mapping[str, Any]) -> str:
    cell, sets = summary["methods"][CHAMPION][MEAN], _sets(summary)
    over = f", averaged over {_list([label(s) for s in sets])} with equal weight" if len(sets) > 1 else ""
    return (
        f"{label(CHAMPION)} finished {cell['completion']:.1f} % of all tasks on time (95 % interval"
        f" {span(cell['ci'])}){over}, when a task arrives with probability {summary['load']:g} per step."
    )


def _against_reference(summary: Mapping[str, Any]) -> str:
    by_set = summary["differences"][f"{CHAMPION}-{REFERENCE}"]
    mean = by_set[MEAN]
    verdict = "more" if mean["points"] > 0 else "fewer"
    if established(mean):
        start = f"That is {abs(mean['points']):.1f} points {verdict} than {label(REFERENCE)} ({_ci(mean)})"
    else:
        start = (
            f"Whether that is more or less than {label(REFERENCE)} is open: the difference is"
            f" {points(mean['points'])} points ({_ci(mean)})"
        )
    parts = [
        f"{points(by_set[name]['points'])} on {label(name)}{'' if established(by_set[name]) else ' (open)'}"
        for name in _sets(summary)
    ]
    return f"{start}; by set {_list(parts)}."


def _against_the_rest(summary: Mapping[str, Any]) -> list[str]:
    groups: dict[str, list[str]] = {"ahead of": [], "behind": [], "open": []}
    for pair, by_set in summary["differences"].items():
        first, second = pair.split("-")
        if first != CHAMPION or second == REFERENCE:
            continue
        mean = by_set[MEAN]
        verdict = "open" if not established(mean) else "ahead of" if mean["points"] > 0 else "behind"
        groups[verdict].append(f"{label(second)} ({points(mean['points'])}, {_ci(mean)})")
    sentences = [
        f"On the mean it is {verdict} {_list(groups[verdict])}."
        for verdict in ("ahead of", "behind")
        if groups[verdict]
    ]
    if groups["open"]:
        sentences.append(
            f"Open, with an interval or corrected p that allows no claim: {_list(groups['open'])}."
        )
    return sentences


def _value_of_forecasts(summary: Mapping[str, Any]) -> list[str]:
    sentences = []
    for pair, who in (("mara-mara_wls", "the learned allocator"), ("lara_fm-lara", "LARA's fixed rule")):
        if pair in summary["differences"]:
            mean = summary["differences"][pair][MEAN]
            claim = "are worth" if established(mean) else "have no established worth:"
            sentences.append(
                f"For {who}, flow-matching forecasts in place of least squares {claim}"
                f" {points(mean['points'])} points ({_ci(mean)})."
            )
    return sentences


def _room_left(summary: Mapping[str, Any]) -> str:
    optimum = summary["bounds"][OPTIMUM][MEAN]
    sentence = (
        f"Somebody who knew every arrival and every demand beforehand could have finished"
        f" {optimum['completion']:.1f} % ({span(optimum['ci'])})"
    )
    share = summary["gap_closed"].get(CHAMPION, {}).get(MEAN)
    if share is None:
        return sentence + "."
    low, high = summary["gap_closed_ci"][CHAMPION][MEAN]
    return (
        f"{sentence}; of the gap from {label(REFERENCE)} to that, {label(CHAMPION)} closes"
        f" {_percent(share)} % ({_percent(low)} to {_percent(high)})."
    )


def _luck(summary: Mapping[str, Any]) -> str:
    seeds = summary["episodes"]["training_seeds"]
    if seeds > 1:
        return f"The intervals cover the luck of {seeds} trainings and of the episodes."
    return (
        "The intervals cover the luck of the episodes only: each policy was trained once, so they do not say"
        " how another training would have turned out."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}".replace("-", MINUS)


def _ci(difference: Mapping[str, Any]) -> str:
    return f"95 % interval {span(difference['ci'], signed=True)}"


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
