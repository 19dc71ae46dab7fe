"""The small files that the tables of a run and of a sweep are made from."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mara_ray.artifacts import read_json, write_json, written_whole
from mara_ray.errors import UserError
from mara_ray.evaluation.leads import leads_of
from mara_ray.evaluation.tables import in_order
from mara_ray.results import RESULTS_FILE, load_results

SUMMARY, MANIFEST, CONFIG = Path("summary.json"), Path("manifest.json"), Path("config.json")
FORECASTS = Path("forecasts") / "evaluation.json"
LEADS, ABLATION = Path("leads.json"), Path("ablation.json")


@dataclass(frozen=True)
class RunResults:
    """What a run came to.

    Attributes:
        loads: the summary of every load, the lowest first; see `tables.summarise`.
        predictors: see `predictor.evaluate.evaluate_predictors`.
        stages: the manifest's record of every stage.
    """

    loads: Mapping[str, Any]
    predictors: Mapping[str, Any]
    stages: Mapping[str, Any]

    @property
    def summary(self) -> Mapping[str, Any]:
        """That of the first load."""
        summary: Mapping[str, Any] = next(iter(self.loads.values()))
        return summary

    @classmethod
    def read(cls, folder: Path) -> RunResults:
        """Read them from a run's directory, or from where they are kept.

        Raises:
            UserError: a file is missing or damaged.
        """
        content = read_json(folder / SUMMARY)
        loads = content.get("loads") or {f"{content['load']:g}": content}
        return cls(
            loads={load: _in_order(loads[load]) for load in sorted(loads, key=float)},
            predictors=read_json(folder / FORECASTS),
            stages=read_json(folder / MANIFEST)["stages"],
        )


@dataclass(frozen=True)
class SweepResults:
    """What a sweep of episodes came to.

    Attributes:
        name, about: as in its file.
        axes: what varies.
        leads: rows of `leads.leads_of`.
    """

    name: str
    about: str
    axes: Sequence[str]
    leads: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> SweepResults:
        """Work them out from a sweep's rows, or read them from where they are kept.

        Raises:
            UserError: there are none, or the sweep is not one of episodes.
        """
        if (folder / LEADS).is_file():
            return cls(**read_json(folder / LEADS))
        rows = load_results(folder)
        if "axes" not in rows.attrs or rows.attrs["kind"] == "forecasts":
            raise UserError(f"sweep: {folder} holds no episodes of a sweep; name the directory of one")
        leads = leads_of(rows, rows.attrs["resamples"], rows.attrs["seed"]).round(3)
        records: list[Any] = leads.astype(object).where(leads.notna(), None).to_dict("records")
        return cls(rows.attrs["sweep"], rows.attrs["about"], rows.attrs["axes"], records)


def keep_results(directory: Path, folder: Path) -> None:
    """Keep the small files of a run's or a sweep's directory in a folder.

    Raises:
        UserError: it is not finished.
    """
    if (directory / RESULTS_FILE).is_file():
        rows = load_results(directory)
        if rows.attrs.get("kind") == "predictor_ablation":
            write_json(
                folder / ABLATION, rows.drop(columns=["sweep", "train_cpu_s"]).round(4).to_dict("records")
            )
        else:
            write_json(folder / LEADS, vars(SweepResults.read(directory)))
        return
    RunResults.read(directory)
    for path in (SUMMARY, MANIFEST, FORECASTS):
        with written_whole(folder / path) as temporary:
            shutil.copyfile(directory / path, temporary)


def _in_order(tree: Any) -> Any:
    """Names in the order that they are shown in, which a sorted JSON file has lost."""
    return {key: _in_order(tree[key]) for key in in_order(tree)} if isinstance(tree, dict) else tree
