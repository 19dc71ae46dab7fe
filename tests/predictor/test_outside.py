"""Forecasts of trainings from elsewhere: scale-free, in the curve's own steps, and defined at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from mara_ray.config import PredictorConfig
from mara_ray.curves.importers import OutsideCurve
from mara_ray.errors import UserError
from mara_ray.predictor.fitting import make_predictor
from mara_ray.predictor.flow import FlowNetwork, FlowPredictor, FlowShape
from mara_ray.predictor.outside import GRID_POINTS, forecast_outside

CONFIG = PredictorConfig(encoder_width=6, velocity_width=8, horizon_bins=8)


@pytest.fixture(scope="module")
def predictor() -> FlowPredictor:
    """Untrained: what is tested holds for any weights."""
    shape = FlowShape(**{name: getattr(CONFIG, name) for name in FlowShape.__dataclass_fields__})
    return make_predictor(CONFIG, FlowNetwork(shape).state_dict(), seed=0)


def curve(num_steps: int = 120, scale: float = 1.0, stretch: float = 1.0) -> OutsideCurve:
    steps = np.arange(num_steps) * stretch
    return OutsideCurve("a", steps.tolist(), (scale * (0.3 + (1 + np.arange(num_steps)) ** -0.5)).tolist())


def test_it_is_free_of_scale_and_in_the_curves_own_steps(predictor: FlowPredictor) -> None:
    one = forecast_outside(predictor, curve(), 0.35, None)
    other = forecast_outside(predictor, curve(scale=40, stretch=25), 14.0, None)
    assert other.remaining_steps_N == pytest.approx(25 * one.remaining_steps_N)
    assert one.num_seen == 151 and one.step_width * 150 == pytest.approx(119)
    assert one.horizon_steps == pytest.approx(119, rel=0.01)
    assert other.means_NH == pytest.approx(40 * one.means_NH, rel=1e-4)
    assert np.isnan(one.ema_L[151:]).all() and np.isfinite(one.ema_L[:151]).all()
    assert 0 <= one.probability <= 1


def test_the_horizon_is_the_users(predictor: FlowPredictor) -> None:
    found = forecast_outside(predictor, curve(), 0.35, 10 * 119.0)
    assert found.num_seen + round(found.horizon_steps / found.step_width) == GRID_POINTS
    assert found.horizon_steps == pytest.approx(1190, rel=0.01)
    assert (found.remaining_steps_N <= found.horizon_steps).all()


def test_edges_are_defined(predictor: FlowPredictor) -> None:
    met = forecast_outside(predictor, curve(), 0.9, None)
    assert met.remaining_steps_N.tolist() == [0] * 8 and met.probability == 1
    flat = OutsideCurve("flat", list(range(50)), [0.7] * 50)
    assert np.isfinite(forecast_outside(predictor, flat, 0.1, None).remaining_steps_N).all()
    short = forecast_outside(predictor, curve(3), 0.35, None)
    assert short.remaining_steps_N == pytest.approx([short.horizon_steps] * 8) and short.probability == 0
    assert forecast_outside(predictor, curve(3), 5.0, None).probability == 1, "met, however short"


@pytest.mark.parametrize(
    ("target", "horizon", "message"),
    [
        (0.35, 0.0, r"--horizon: 0 is not over 0"),
        (0.35, float("nan"), r"--horizon: nan is not over 0"),
        (-1.0, None, r"--target: -1 is not over 0"),
        (0.35, 1e9, r"--horizon: 1e\+09 steps do not go with a curve of 119 steps"),
        (0.35, 1e-4, r"--horizon: 0\.0001 steps do not go with"),
    ],
)
def test_bad_arguments(predictor: FlowPredictor, target: float, horizon: float | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        forecast_outside(predictor, curve(), target, horizon)
