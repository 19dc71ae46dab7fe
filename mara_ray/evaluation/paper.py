"""The paper's figures (arXiv 2608.09130), each with its place there and where ours is found.

Sections and tables are named where their numbers are known to us; else by what the passage is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["level", "difference", "operation", "error", "success", "stress"]
BASE_LOAD, HEAVIEST_LOAD = "0.04", "0.07"


@dataclass(frozen=True)
class PaperFigure:
    """One number of the paper.

    Attributes:
        value: in percent or points, or in the unit of `what`.
        place: where the paper says it.
        kind: which of our results answers it: a "level" or "difference" of completion, a difference in
            "operation", a change of the predictor's "error" in percent or of its "success" in points against
            WLS, or the share of tasks finished in the "stress" test.
        name: of the method, the pair of methods, or the predictor.
        where: the set, or the measure of operation.
        load: the arrival rate, as the summary names it.
        upto: the other end, if the paper gives a range.
    """

    value: float
    place: str
    kind: Kind
    name: str
    where: str = "mean"
    load: str = BASE_LOAD
    upto: float | None = None


MAIN, LOADS = "main results, at the training load", "load generalisation"
ABLATION, REWARD = "Section 5.8, Table 2", "reward ablation"
FORECASTS, STRESS, OPERATION = "prediction quality", "Section 5.4, Table 3", "Section 5.7, Table 4"

PAPER: dict[str, tuple[PaperFigure, ...]] = {
    "Completion": (
        PaperFigure(63.46, f"abstract; {MAIN}", "level", "mara"),
        PaperFigure(54.93, MAIN, "level", "lara"),
        PaperFigure(8.54, f"abstract; {MAIN}", "difference", "mara-lara"),
        PaperFigure(8.30, MAIN, "difference", "mara-lara", "id"),
        PaperFigure(8.96, MAIN, "difference", "mara-lara", "rl"),
        PaperFigure(8.35, MAIN, "difference", "mara-lara", "vit"),
    ),
    "Heavier loads": (
        PaperFigure(50.53, LOADS, "level", "mara", load=HEAVIEST_LOAD),
        *(
            PaperFigure(8.43, LOADS, "difference", "mara-lara", load=load, upto=8.84)
            for load in ("0.05", "0.06", HEAVIEST_LOAD)
        ),
    ),
    "Components": (
        PaperFigure(60.64, ABLATION, "level", "lara_fm"),
        PaperFigure(62.07, ABLATION, "level", "mara_wls"),
        PaperFigure(1.39, ABLATION, "difference", "mara-mara_wls"),
        PaperFigure(2.83, ABLATION, "difference", "mara-lara_fm"),
        PaperFigure(7.14, ABLATION, "difference", "mara_wls-lara"),
        PaperFigure(5.71, ABLATION, "difference", "lara_fm-lara"),
    ),
    "Dense against sparse reward": (
        PaperFigure(57.87, REWARD, "level", "mara_sparse"),
        PaperFigure(5.59, REWARD, "difference", "mara-mara_sparse"),
        PaperFigure(5.46, REWARD, "difference", "mara-mara_sparse", "id"),
        # As printed; with a mean of 5.59 it can only be 5.72.
        PaperFigure(15.72, REWARD, "difference", "mara-mara_sparse", "rl"),
        PaperFigure(5.61, REWARD, "difference", "mara-mara_sparse", "vit"),
    ),
    "Forecasts": (
        PaperFigure(-52.1, FORECASTS, "error", "fm", "id"),
        PaperFigure(-41.6, FORECASTS, "error", "fm", "rl"),
        PaperFigure(-3.3, FORECASTS, "error", "fm", "vit"),
        PaperFigure(7.66, FORECASTS, "success", "fm", "id"),
        PaperFigure(18.75, FORECASTS, "success", "fm", "rl"),
        PaperFigure(0.83, FORECASTS, "success", "fm", "vit"),
    ),
    "The stress test": (
        PaperFigure(65.0, STRESS, "stress", "mara"),
        PaperFigure(65.0, STRESS, "stress", "independent"),
        PaperFigure(0.0, STRESS, "stress", "edf"),
        PaperFigure(0.0, STRESS, "stress", "fifo"),
    ),
    "Operation": (
        PaperFigure(-7.3, OPERATION, "operation", "mara-fifo", "full_queue_fraction"),
        PaperFigure(-6.4, OPERATION, "operation", "mara-edf", "full_queue_fraction"),
        PaperFigure(-0.19, OPERATION, "operation", "mara-fifo", "waiting_tasks"),
        PaperFigure(-0.17, OPERATION, "operation", "mara-edf", "waiting_tasks"),
        PaperFigure(-43.3, OPERATION, "operation", "mara-fifo", "readiness_delay"),
        PaperFigure(-42.3, OPERATION, "operation", "mara-edf", "readiness_delay"),
    ),
}
