"""Presets, overrides, errors and the hash."""

from __future__ import annotations

import pytest

from mara_ray.config import RunConfig, config_hash, load_config, preset_names
from mara_ray.errors import UserError


@pytest.mark.parametrize("name", preset_names())
def test_every_shipped_preset_is_valid_and_bears_its_name(name: str) -> None:
    assert load_config(name).name == name


def test_overrides_reach_the_field_and_change_the_hash() -> None:
    plain, changed = load_config("quick"), load_config("quick", ["predictor.epochs=7"])
    assert changed.predictor.epochs == 7
    assert config_hash(plain) != config_hash(changed)
    assert config_hash(plain.workload) == config_hash(changed.workload)


def test_the_hash_does_not_depend_on_key_order_or_on_written_defaults() -> None:
    tree = load_config("quick").model_dump(mode="json")
    backwards = dict(reversed(list(tree.items())))
    assert config_hash(RunConfig.model_validate(backwards)) == config_hash(load_config("quick"))


@pytest.mark.parametrize(
    ("preset", "override", "parts"),
    [
        ("quik", None, ["'quik'", "'quick'"]),
        ("quick", "predictor.epoch=3", ["predictor.epoch", "'predictor.epochs'"]),
        ("quick", "predictr.epochs=3", ["predictr", "predictor"]),
        ("quick", "predictor.epochs=0", ["predictor.epochs", "0"]),
        ("quick", "predictor.epochs=many", ["predictor.epochs", "'many'"]),
        ("quick", "workload.arrival_probability=1.5", ["workload.arrival_probability", "1.5"]),
        ("quick", "predictor.epochs", ["section.field=value"]),
        ("quick", "name.x=1", ["name"]),
        ("quick", "seed=[1", ["seed"]),
    ],
)
def test_bad_input_gets_one_line_with_field_value_and_remedy(
    preset: str, override: str | None, parts: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        load_config(preset, [override] if override else [])
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_a_preset_may_be_a_file_and_a_broken_file_is_named(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: [")
    with pytest.raises(UserError, match=r"mine\.yaml"):
        load_config(str(path))
    path.write_text("- 1")
    with pytest.raises(UserError, match="mapping"):
        load_config(str(path))
