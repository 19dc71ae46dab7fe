"""What a curve bank holds: counts and quantiles by configuration, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from mara_ray.curves.bank import CurveBank, first_crossing
from mara_ray.evaluation.tables import label

QUANTILES = (0.1, 0.5, 0.9)
SHOWN = (("share_left", 100, 0), ("half_done_points", 1, 0), ("noise", 100, 0))


def bank_counts(bank: CurveBank) -> dict[str, dict[str, Any]]:
    """By configuration: set, curves by status and split, and quantiles (10, 50, 90 %) over accepted curves.

    The quantiles are of the first loss; of the share of it that is left at the lowest point; of the points
    seen until half of the curve's log-drop is done (early: a fast decay; late: a plateau before the drop);
    and of the noise, the mean distance of a raw loss from the smoothed one, as a share of the latter.
    """
    half_done_C = first_crossing(bank.ema_CL, bank.target_losses((0.5,)))[:, 0]
    noise_C = (np.abs(bank.raw_CL - bank.ema_CL) / bank.ema_CL).mean(1)
    counts = {}
    for name in dict.fromkeys(bank.configuration[np.argsort(bank.set, kind="stable")].tolist()):
        rows = np.flatnonzero(bank.configuration == name)
        good = rows[bank.accepted[rows]]
        measures = {
            "first_loss": bank.ema_CL[good, 0],
            "share_left": bank.ema_CL[good].min(1) / bank.ema_CL[good, 0],
            "half_done_points": half_done_C[good],
            "noise": noise_C[good],
        }
        counts[name] = {
            "set": str(bank.set[rows[0]]),
            "curves": len(rows),
            "accepted": len(good),
            "status": _tally(bank.status[rows]),
            "split": _tally(bank.split[good]),
            "quantiles": {
                key: [round(float(q), 4) for q in np.quantile(values, QUANTILES)]
                for key, values in measures.items()
                if len(good)
            },
        }
    return counts


def bank_table(counts: Mapping[str, Mapping[str, Any]]) -> Table:
    """The counts for a terminal."""
    table = Table(
        title="Loss curves by configuration (10/50/90 % quantiles of accepted ones)",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for head in ("configuration", "set"):
        table.add_column(head, no_wrap=True)
    for head in ("accepted", "others", "% left", "half at", "% noise"):
        table.add_column(head, justify="right", no_wrap=head != "others")
    for name, entry in counts.items():
        others = " ".join(f"{n} {status}" for status, n in entry["status"].items() if status != "ok")
        quantiles = [
            "/".join(f"{scale * q:.{digits}f}" for q in entry["quantiles"].get(key, []))
            for key, scale, digits in SHOWN
        ]
        table.add_row(name, label(entry["set"]), str(entry["accepted"]), others, *quantiles)
    return table


def _tally(values: np.ndarray) -> dict[str, int]:
    names, counts = np.unique(values, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))
