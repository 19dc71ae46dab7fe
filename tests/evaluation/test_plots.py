from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from test_rollout import Table, one_curve
from test_tables import HASHES, make_rows

from mara_ray.allocator.queueing import EDF, FIFO
from mara_ray.config import SimulatorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.curve_plots import Fan, forecast_fans, sample_curves
from mara_ray.evaluation.gantt import gantt, pack_lanes, segments
from mara_ray.evaluation.plots import Picture, completion_bars, learning_curves
from mara_ray.evaluation.rollout import rollout
from mara_ray.evaluation.tables import summarise
from mara_ray.simulator.engine import Simulator
from mara_ray.workload.episodes import Workload


def some_gantt() -> Picture:
    replay = one_curve(np.linspace(1.0, 0.1, 12).tolist(), needed=[4, 2**30, 12])
    columns = np.array([[0, 1, 7], [9, 8, 10], [0, 0, 0], [0, 1, 2]], np.int32)[:, None]
    workload = Workload(*columns, np.array([3], np.int32))
    played = {
        method: rollout(Simulator(SimulatorConfig(num_nodes=1), 10, replay), Table(), allocator, workload)
        for method, allocator in (("mara", EDF()), ("lara", FIFO()))
    }
    return gantt(played, 0, "the only one")


def some_bars() -> Picture:
    return completion_bars(summarise(make_rows(1, 2, 5), 0.04, HASHES, 50, 0))


def some_learning() -> Picture:
    history = pd.DataFrame({"step": [0, 1, 2], "validation_completion": [50.0, np.nan, 55.0]})
    return learning_curves(
        {"fm-seed0": history}, {"validation_completion": "validation", "entropy": "entropy"}
    )


def some_curves(bank: CurveBank) -> Picture:
    return sample_curves(bank)


def some_fans(bank: CurveBank) -> Picture:
    means_NH = bank.ema_CL[0, 20:52] * np.linspace(0.9, 1.1, 8)[:, None]
    return forecast_fans([Fan("first", bank.ema_CL[0], 20, means_NH)])


@pytest.mark.parametrize("make", [some_gantt, some_bars, some_learning])
def test_pictures_are_legible_images_with_words(make: Callable[[], Picture]) -> None:
    check(make())


def test_pictures_of_curves(toy_bank: CurveBank) -> None:
    check(some_curves(toy_bank))
    fans = some_fans(toy_bank)
    check(fans)
    assert fans.png == some_fans(toy_bank).png, "the same picture twice gives other bytes"


def check(picture: Picture) -> None:
    image = Image.open(io.BytesIO(picture.png)).convert("L")
    assert image.width >= 1000 and image.height >= 300
    shades = np.asarray(image)
    assert 0.005 < (shades < 200).mean() < 0.6, "blank, or all ink"
    assert len(picture.alt) > 20 and len(picture.caption) > 60


def test_gantt_counts_what_was_finished() -> None:
    """EDF (here as MARA) turns to task 1 in step 1 and finishes nothing; FIFO (as LARA) ends task 0."""
    assert "3 tasks; on time: MARA 0, LARA 1" in some_gantt().alt


def test_segments_by_hand() -> None:
    assert segments(np.array([-1, 2, 2, 0, -1, -1, 0])) == [(2, 1, 2), (0, 3, 1), (0, 6, 1)]
    assert segments(np.array([-1, -1])) == []


def test_lanes_do_not_overlap_and_are_few() -> None:
    start, end = np.array([0, 5, 20, 31]), np.array([20, 40, 50, 60])
    lanes = pack_lanes(start, end)
    assert lanes.tolist() == [0, 1, 0, 2]
