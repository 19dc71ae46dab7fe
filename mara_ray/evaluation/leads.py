"""What the rows of a sweep come to: completion of every cell and method, and its lead over LARA.

Axis letter: Z resamples.
"""

from __future__ import annotations

import pandas as pd

from mara_ray.evaluation.stats import interval
from mara_ray.evaluation.tables import MEAN, REFERENCE, levels_of, outcomes_of
from mara_ray.seeding import generator

PLACES = ("cell", "workload", "load")  # columns that say which rows met the same episodes


def leads_of(rows: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """Completion and lead over LARA with 95 % intervals, paired, over training seeds and workload roots.

    Args:
        rows: of a sweep's kind `evaluation` or `play`; see `mara_ray.load_results`.
        resamples: of the bootstrap.
        seed: root of the resampling.

    Returns:
        Columns cell, the axes, workload if there, load, method, set (with `mean`), completion, low, high (in
        percent) and lead, lead_low, lead_high (in points; missing where LARA did not play).

    Raises:
        UserError: the methods of a cell did not meet the same episodes.
    """
    places = [name for name in PLACES if name in rows]
    axes = [name for name in rows.columns[: rows.columns.get_loc("method")] if name not in ("sweep", *places)]
    found = []
    for place, part in rows.groupby(places, sort=False):
        key = dict(zip(places, place, strict=True)) | part.iloc[0][axes].to_dict()
        levels = levels_of(
            outcomes_of(part, float(part["load"].iloc[0])), resamples, generator(seed, "bootstrap", MEAN)
        )
        for method, by_set in levels.items():
            for set_name, (level, replicates_Z) in by_set.items():
                low, high = interval(replicates_Z)
                row = {"method": method, "set": set_name, "completion": level, "low": low, "high": high}
                if REFERENCE in levels:
                    reference, reference_Z = levels[REFERENCE][set_name]
                    lead_low, lead_high = interval(replicates_Z - reference_Z)
                    row |= {"lead": level - reference, "lead_low": lead_low, "lead_high": lead_high}
                found.append(key | row)
    table = pd.DataFrame(found)  # the columns of the leads are there if any cell has the reference
    keys = [*places[:1], *axes, *places[1:]]
    return table[[*keys, *(name for name in table.columns if name not in keys)]]
