"""The tables of forecasts, and of how tight the workloads are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mara_ray.evaluation.findings import MINUS, points
from mara_ray.evaluation.result_tables import Cell, ResultTable, Row, brackets
from mara_ray.evaluation.tables import MEAN, in_order, label, predictor_scores

# The scores of a predictor that are shown, and the factor to the unit of the column.
SCORES = {"capped_mae": 1, "success_accuracy": 100, "crps": 1, "coverage_90": 100}
BASELINE = "wls"
SETTINGS = {
    "base": "as shipped, but fewer epochs",
    "tell_target": "told the target",
    "num_samples": "samples N",
    "euler_steps": "Euler steps (sampler alone)",
    "warmup_points": "warm-up, points",
    "horizon_bins": "bins H",
    "last_bin_ratio": "last bin over first, width",
    "max_stretch": "time-stretch, up to",
    "max_noise": "noise on curves, up to",
    "shortest_share": "curves end early, from share",
    "encoder_width": "encoder width",
    "velocity_width": "velocity width",
    "train_curves": "training curves",
}


def predictors(evaluation: Mapping[str, Any]) -> ResultTable:
    """Every score of every predictor and set."""
    rows = []
    for name, set_name, scores, versus in predictor_scores(evaluation):
        cells = [Cell(f"{factor * scores[key]:.1f}") for key, factor in SCORES.items()]
        cells.append(_saved(versus) if versus else Cell())
        rows.append(Row(f"{label(name)}, {label(set_name)}", cells))
    note = (
        "On test curves, which no predictor was fitted to. Capped MAE: error of the steps still needed, never"
        " counted as more than the remaining cap. On time: how often it says rightly whether a task will be"
        " done within a window. CRPS: the error of the whole distribution, in steps. MAE saved: against WLS,"
        " with its paired 95 % interval over curves."
    )
    head = ["predictor, set", "capped MAE", "on time? right, %", "CRPS", "in 90 % band, %", "MAE saved, %"]
    return ResultTable("Forecasts of remaining demand", head, rows, note)


def _saved(versus: Mapping[str, Any]) -> Cell:
    low, high = versus["ci"]
    return Cell(points(versus["mae_reduction_percent"]), brackets((low, high), "+.1f"), low > 0 or high < 0)


def predictor_means(evaluation: Mapping[str, Any]) -> ResultTable:
    """Predictors in a line each: errors by set with their change against WLS, the other scores as means."""
    found = evaluation["predictors"]
    sets = [name for name in in_order(found[BASELINE]) if name != MEAN]
    rows = []
    for name in in_order(found):
        if name == "oracle":
            continue
        versus = evaluation["versus_wls"].get(name, {})
        cells = [Cell(f"{found[name][s]['capped_mae']:.1f}{_change(versus.get(s))}") for s in sets]
        mean = found[name][MEAN]
        cells += [Cell(f"{100 * mean['success_accuracy']:.1f}"), Cell(f"{mean['crps']:.1f}")]
        cells.append(Cell(f"{100 * mean['coverage_90']:.0f}"))
        rows.append(Row(f"{label(name)} (`{name}`)", cells))
    head = ["predictor", *map(label, sets), "success, %", "CRPS", "90 % covers, %"]
    return ResultTable("Forecasts", head, rows)


def _change(versus: Mapping[str, Any] | None) -> str:
    return f" ({points(-versus['mae_reduction_percent'])} %)" if versus else ""


def ablation(found: Sequence[Mapping[str, Any]]) -> ResultTable:
    """What one changed setting at a time comes to, on validation curves."""
    rows = []
    for setting, name in SETTINGS.items():
        for scores in sorted(
            (row for row in found if row["setting"] == setting), key=lambda row: row["value"]
        ):
            value = "" if setting == "base" else f"{scores['value']:g}"
            cells = [Cell(f"{factor * scores[key]:.1f}") for key, factor in SCORES.items()]
            rows.append(Row(name, [Cell(value), *cells]))
    head = ["setting", "value", "capped MAE, steps", "success, %", "CRPS", "90 % covers, %"]
    return ResultTable("One change at a time", head, rows)


def early_errors(evaluation: Mapping[str, Any]) -> ResultTable:
    """The error before the warm-up is over, of flow matching without and with a prior."""
    names = {"fm": "the remaining cap (`fm`)", "fm_prior": "the training curves' prior (`fm_prior`)"}
    return _errors("before the fourth point", evaluation["early"], names, ".0f")


def slow_errors(evaluation: Mapping[str, Any]) -> ResultTable:
    """The error on the curves that fall least."""
    names = {name: label(name) for name in (BASELINE, "fm", "quantile", "hazard")}
    return _errors("the quarter that falls least", evaluation["slow"], names, ".1f")


def _errors(title: str, scores: Mapping[str, Any], names: Mapping[str, str], form: str) -> ResultTable:
    sets = [name for name in in_order(scores[BASELINE]) if name != MEAN]
    rows = [
        Row(text, [Cell(f"{scores[name][s]['capped_mae']:{form}}") for s in sets])
        for name, text in names.items()
        if name in scores
    ]
    return ResultTable(f"Error, {title}", [title, *map(label, sets)], rows, "Capped error in steps.")


def settings_tried(calibration: Mapping[str, Any], windows: Sequence[int] = (150, 200, 250)) -> ResultTable:
    """How tight deadlines and targets are at the first load, in part.

    Args:
        calibration: what `mara calibrate --json` prints.
        windows: D0 that are shown.
    """
    first = min(row["load"] for row in calibration["rows"])
    shown = [row for row in calibration["rows"] if row["load"] == first and row["window"] in windows]
    rows = [Row(f"{row['least_fraction']:.2f}", [Cell(f"{row['window']}"), *_played(row)]) for row in shown]
    head = ["least fraction", "D0", *map(label, METHODS), "LARA's lead"]
    return ResultTable("Settings tried", head, rows, f"At p = {first:g}.")


def setting_chosen(calibration: Mapping[str, Any]) -> ResultTable:
    """The setting that was chosen, by load."""
    chosen = (calibration["least_fraction"], calibration["window_steps"])
    rows = [
        Row(f"{row['load']:.2f}", _played(row))
        for row in calibration["rows"]
        if (row["least_fraction"], row["window"]) == chosen
    ]
    return ResultTable("The setting chosen", ["p", *map(label, METHODS), "LARA's lead"], rows)


METHODS = ("lara", "edf", "fifo")


def _played(row: Mapping[str, Any]) -> list[Cell]:
    lead = Cell(points(row["lead"]), brackets((row["lead_low"], row["lead_high"]), "+.1f"))
    return [*(Cell(f"{row[name]:.1f}".replace("-", MINUS)) for name in METHODS), lead]
