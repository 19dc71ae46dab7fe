"""The small files a run's tables are made from: in its directory, or kept with the documents."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mara_ray.artifacts import read_json, written_whole
from mara_ray.evaluation.tables import MEAN, REFERENCE, in_order

SUMMARY, MANIFEST = Path("summary.json"), Path("manifest.json")
FORECASTS = Path("forecasts") / "evaluation.json"
MARGINS = Path("margins") / "margins.json"
STRESS = Path("play") / "stress.json"
REQUIRED, OPTIONAL = (SUMMARY, MANIFEST, FORECASTS), (MARGINS, STRESS)
TOLERANCE_POINTS = 0.01  # summaries are rounded


@dataclass(frozen=True)
class RunResults:
    """What a run came to.

    Attributes:
        loads: the summary of every load, the first one first; see `tables.summarise`.
        predictors: see `predictor.evaluate.evaluate_predictors`.
        stages: the manifest's record of every stage.
        margins: rows of `experiments.margins`; none if they were not played, or with other policies.
        stress: by method what became of the stress test; None if it was not played, or with other policies.
    """

    loads: Mapping[str, Any]
    predictors: Mapping[str, Any]
    stages: Mapping[str, Any]
    margins: Sequence[Mapping[str, Any]]
    stress: Mapping[str, Any] | None

    @property
    def summary(self) -> Mapping[str, Any]:
        """That of the first load."""
        summary: Mapping[str, Any] = next(iter(self.loads.values()))
        return summary

    @classmethod
    def read(cls, folder: Path) -> RunResults:
        """Read them.

        Raises:
            UserError: a file that every run has is missing or damaged.
        """
        content = read_json(folder / SUMMARY)
        loads = content.get("loads") or {f"{content['load']:g}": content}
        loads = {load: _in_order(loads[load]) for load in sorted(loads, key=float)}
        margins = read_json(folder / MARGINS) if (folder / MARGINS).is_file() else []
        stress = read_json(folder / STRESS) if (folder / STRESS).is_file() else None
        summary = next(iter(loads.values()))
        return cls(
            loads=loads,
            predictors=read_json(folder / FORECASTS),
            stages=read_json(folder / MANIFEST)["stages"],
            margins=margins if _same_levels(margins, summary) else [],
            stress=stress["methods"] if stress and stress["hashes"] == summary["hashes"] else None,
        )


def keep_results(run_directory: Path, folder: Path) -> None:
    """Copy the small files of a run.

    Raises:
        UserError: the run is not finished.
    """
    RunResults.read(run_directory)
    for path in (*REQUIRED, *OPTIONAL):
        if (run_directory / path).is_file():
            with written_whole(folder / path) as temporary:
                shutil.copyfile(run_directory / path, temporary)
        else:
            (folder / path).unlink(missing_ok=True)


def _in_order(tree: Any) -> Any:
    """Names in the order that they are shown in, which a sorted JSON file has lost."""
    return {key: _in_order(tree[key]) for key in in_order(tree)} if isinstance(tree, dict) else tree


def _same_levels(margins: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> bool:
    """Whether margins without a cost are those of the summary: else they are of other policies or episodes."""
    levels = {name: by_set[MEAN]["completion"] for name, by_set in summary["methods"].items()}
    leads = {m["method"]: m["points"] for m in margins if m["value"] == 0}
    return leads.keys() <= levels.keys() and all(
        abs(lead - (levels[name] - levels[REFERENCE])) < TOLERANCE_POINTS for name, lead in leads.items()
    )
