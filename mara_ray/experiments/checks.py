"""What is refused before a run begins, since it would only fail hours later."""

from __future__ import annotations

from mara_ray.allocator.mat.policy import MATAllocator, located_policies
from mara_ray.allocator.methods import method_named
from mara_ray.config import RunConfig
from mara_ray.curves.bank import CurveBank, located_bank
from mara_ray.curves.catalog import configuration_named
from mara_ray.errors import UserError
from mara_ray.experiments.comparison import policy_names
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.weights import located_predictor


def check_config(config: RunConfig) -> None:
    """Refuse at once what would only fail hours later.

    Raises:
        UserError: unknown names, a set without curves, or a method without its policy.
    """
    if config.curves.bank is None:
        origin = "curves.configurations"
        sets = {configuration_named(name).set for name in config.curves.configurations}
    else:
        origin, bank = "curves.bank", CurveBank.read(located_bank(config.curves.bank))
        sets = set(bank.set[bank.accepted].tolist())
    if config.predictor.trained is not None:
        FlowPredictor.load(located_predictor(config.predictor.trained))
    for set_name in ("id", *config.evaluation.sets):
        if set_name not in sets:
            raise UserError(
                f"{origin}: no curve is of set {set_name!r}; add some, or drop the set from evaluation.sets"
            )
    for name in config.evaluation.methods:
        _check_forecast("evaluation.methods", name, config)
        if method_named(name).make is None and name not in config.allocator.policies:
            raise UserError(
                f"evaluation.methods: {name!r} needs a trained policy; add it to allocator.policies"
            )
    for name in config.allocator.policies:
        _check_forecast("allocator.policies", name, config)
        if method_named(name).make is not None:
            raise UserError(
                f"allocator.policies: {name!r} is a rule, and nothing of it is trained; leave it out"
            )
    if config.allocator.trained is not None:
        for name in policy_names(config):
            MATAllocator.load(located_policies(config.allocator.trained) / name)


def _check_forecast(field: str, name: str, config: RunConfig) -> None:
    forecast = method_named(name).forecast
    if forecast not in ("fm", "wls", "oracle", *config.evaluation.rivals):
        raise UserError(f"{field}: {name!r} needs forecasts of {forecast!r}; add it to evaluation.rivals")
