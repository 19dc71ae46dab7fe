"""The way to a target, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mara_ray.config import PredictorConfig
from mara_ray.predictor.ways import FURTHEST_WAY, example_ways, losses_on_the_way, ways_gone


def test_the_way_to_a_target_by_hand() -> None:
    """From a loss of 8 to a target of 2: half of the way at 4, all at 2, one and a half at 1."""
    means, unit = np.array([8.0, 4.0, 2.0, 1.0, 1e-9]), np.log(np.array([4.0]))
    way = ways_gone(means, np.array([8.0]), unit)
    assert np.expm1(way).tolist() == pytest.approx([0, 0.5, 1, 1.5, FURTHEST_WAY])
    back = losses_on_the_way(way, np.array([8.0]), unit)
    assert back[:4].tolist() == pytest.approx([8, 4, 2, 1])
    assert back[4] == pytest.approx(8 * 4**-FURTHEST_WAY)  # no further
    assert ways_gone(1e6 * means, np.array([8e6]), unit).tolist() == pytest.approx(way.tolist())


@pytest.mark.parametrize("told", [True, False])
def test_ways_are_those_of_the_lowest_losses(told: bool) -> None:
    """Two halvings to the lowest loss, which is the target, and then nothing under it."""
    config = PredictorConfig(
        horizon_bins=2, warmup_points=1, target_fractions=(0.999999, 1.0), tell_target=told
    )
    losses = np.array([[8.0, 4.0, 2.0, 6.0, 3.0]])
    way_PH = example_ways(config, losses, 0)[0]
    unit = np.log(4) if told else 1.0
    assert way_PH.shape == (4, 2)
    assert way_PH[0].tolist() == pytest.approx(np.log1p(np.log([8 / 3, 4]) / unit).tolist(), rel=1e-4)
    assert way_PH[2:].tolist() == [[0, 0], [0, 0]]  # nothing is under the lowest loss any more
