"""The run configuration: typed sections, YAML presets and dotted overrides.

`load_config("quick", ["workload.arrival_probability=0.05"])` reads a preset, applies the overrides
and validates the whole. Every field says what it is; an unknown key is refused with the nearest
valid one.
"""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mara_ray.errors import UserError
from mara_ray.mappings import read_mapping

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
Rival = Literal["power", "laira", "quantile", "hazard", "fm_prior"]  # of flow matching; see predictor.rivals

TARGET_RANGE = (0.1, 1.05)  # of targets, as fractions of a curve's log-drop; chosen by `mara calibrate`


def target_levels(least: float) -> tuple[float, ...]:
    """Fractions of the log-drop from `least` to the greatest of `TARGET_RANGE`, .05 apart."""
    return tuple(
        round(least + 0.05 * level, 2) for level in range(1 + round((TARGET_RANGE[1] - least) / 0.05))
    )


class Section(BaseModel):
    """Base of every section: immutable, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ClusterConfig(Section):
    """Where Ray runs."""

    address: str | None = Field(None, description="Ray address; null starts a private local Ray")
    num_cpus: Positive | None = Field(None, description="CPUs of the private Ray; null takes all cores")


class CurvesConfig(Section):
    """The bank of loss curves, from real trainings."""

    bank: Path | None = Field(
        None, description="take this bank (a path, or `standard`, which ships) instead of training one"
    )
    configurations: dict[str, Positive] = Field(
        description="accepted curves wanted of each model-dataset configuration"
    )
    length_points: Annotated[int, Field(ge=20, le=2000)] = Field(
        300, description="points of a curve, the untrained loss included: the cap L"
    )
    batches_per_point: Positive = Field(2, description="mini-batches averaged into one point (a block)")
    curves_per_task: Positive = Field(4, description="short trainings done by one Ray task")
    num_gpus_per_task: Annotated[float, Field(ge=0.0)] = Field(
        0.0, description="GPU (fraction) that one Ray task asks for"
    )
    max_retries: NonNegative = Field(3, description="retries of a task whose worker died or raised")
    data_folder: Path = Field(
        Path("data"), description="folder of the full-size data sets; on a cluster, the same on every node"
    )


class PredictorConfig(Section):
    """The conditional-flow-matching predictor of remaining demand."""

    trained: Path | None = Field(
        None, description="take this predictor (a folder, or `standard`, which ships) instead of training one"
    )
    horizon_bins: Positive = Field(32, description="bins H of the future loss segment")
    last_bin_ratio: Annotated[float, Field(ge=1.0)] = Field(
        1.0, description="width of the last bin over that of the first, growing evenly in log; 1 is all alike"
    )
    tell_target: bool = Field(True, description="the flow is told which target is asked for")
    num_samples: Positive = Field(8, description="sampled futures N per prefix")
    euler_steps: Annotated[int, Field(ge=2)] = Field(4, description="Euler steps of the sampler")
    warmup_points: Positive = Field(4, description="under so many points the forecast is the remaining cap")
    target_fractions: tuple[PositiveFloat, PositiveFloat] = Field(
        TARGET_RANGE,
        description="fractions of a curve's log-drop between which targets are expected",
    )
    encoder_width: Positive = Field(96, description="width of the causal GRU encoder")
    velocity_width: Positive = Field(64, description="hidden width of the velocity network")
    max_stretch: Annotated[float, Field(ge=1.0)] = Field(
        1.0, description="training curves run up to so many times faster or slower; 1 leaves them"
    )
    max_noise: Annotated[float, Field(ge=0.0)] = Field(
        0.0, description="relative size of the smooth noise on training curves, at most; 0 leaves them"
    )
    shortest_share: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        1.0, description="training curves end early, after at least this share of their points; 1 leaves them"
    )
    epochs: Positive = Field(40, description="passes over the training curves; validation chooses one")
    patience_epochs: Positive = Field(
        20, description="training stops after so many epochs without a lower validation error"
    )
    batch_curves: Positive = Field(16, description="curves per gradient step, all workers together")
    learning_rate: PositiveFloat = Field(3e-3, description="peak Adam learning rate, cosine decay")
    num_workers: Positive = Field(1, description="Ray Train workers")
    use_gpu: bool = Field(False, description="give each Ray Train worker a GPU")


class WorkloadConfig(Section):
    """Who arrives when, with what target and deadline."""

    episode_steps: Positive = Field(500, description="steps T of an episode")
    arrival_probability: Probability = Field(
        0.04, description="Bernoulli arrival rate p of training and validation"
    )
    window_steps: Positive = Field(description="deadline window D0; a task gets U(0.9, 1.1) of it")
    window_spread: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(0.1, description="half-width of that draw")
    initial_tasks: NonNegative = Field(0, description="tasks present at step 0, beside those that arrive")
    beyond_end: Literal["cut", "leave_out"] = Field(
        "cut", description="deadlines after T: cut at T, or the task never comes and is not counted"
    )
    target_fractions: tuple[PositiveFloat, ...] = Field(
        target_levels(TARGET_RANGE[0]),
        description="fractions of a curve's log-drop a target is drawn from; over 1 is never reached",
    )


class SimulatorConfig(Section):
    """The pool of nodes."""

    num_nodes: Positive = Field(4, description="nodes M")
    num_slots: Positive = Field(8, description="task slots K an allocator sees")
    overflow: Literal["defer", "drop"] = Field("defer", description="full slots: wait outside, or be lost")
    node_speeds: tuple[PositiveFloat, ...] | None = Field(
        None, description="points of service per step of each node; null is 1 for all"
    )
    switch_cost_steps: NonNegative = Field(0, description="steps a node loses when it changes its task")
    migration_cost_steps: NonNegative = Field(
        0, description="further steps lost when a task comes from another node, the one that served it last"
    )
    loss_noise: Annotated[float, Field(ge=0.0, le=2.0)] = Field(
        0.0, description="standard deviation of log factors on each raw loss at run time; 0 leaves the curves"
    )
    noise_seed: NonNegative = Field(0, description="root of these factors")
    potential_weight: Annotated[float, Field(ge=0.0)] = Field(
        0.1, description="weight beta of the log-progress potential; 0 is the sparse reward"
    )


class AllocatorConfig(Section):
    """The Multi-Agent Transformer and its PPO training."""

    trained: Path | None = Field(
        None,
        description="take these policies (a folder, or `standard`, which ships) instead of training them",
    )
    policies: tuple[str, ...] = Field(
        ("mara", "mara_wls"), description="learned methods, by name; one policy of each is trained per seed"
    )
    num_seeds: Positive = Field(1, description="training seeds of each policy")
    width: Positive = Field(32, description="token width d")
    num_heads: Positive = Field(4, description="attention heads")
    num_blocks: Positive = Field(1, description="encoder blocks, and as many decoder blocks")
    updates: Positive = Field(description="PPO updates")
    load_factors: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = Field(
        (1.0, 1.5, 2.0),
        description="episodes of training and validation take these multiples of the arrival rate in turn",
    )
    decision_steps: Positive = Field(
        20, description="steps for which a decision is held while the tasks stay the same"
    )
    episodes_per_update: Positive = Field(96, description="full episodes sampled for one update")
    rollouts_per_workload: Positive = Field(
        8, description="of these episodes, how many share a workload: a baseline for one another"
    )
    epochs: Positive = Field(4, description="passes over a batch per update")
    minibatch_rows: Positive = Field(1200, description="time-step rows of one minibatch")
    learning_rate: PositiveFloat = Field(3e-3, description="Adam learning rate (eps 1e-5), falling to 0")
    clip: PositiveFloat = Field(0.2, description="PPO ratio clip, per node")
    gae_lambda: Probability = Field(0.95, description="lambda of the team GAE, a decision; gamma is 1")
    entropy_start: Annotated[float, Field(ge=0.0)] = Field(0.001, description="entropy weight, decayed to 0")
    value_weight: PositiveFloat = Field(0.5, description="weight of the (normalised) value loss")
    gradient_clip: PositiveFloat = Field(1.0, description="global gradient-norm clip")
    num_env_runners: NonNegative = Field(0, description="remote EnvRunners; 0 samples in the trainer itself")
    validate_every: Positive = Field(4, description="updates between two validations (and checkpoints)")
    validation_episodes: Positive = Field(64, description="frozen episodes that choose the checkpoint")


class EvaluationConfig(Section):
    """The frozen comparison."""

    methods: tuple[str, ...] = Field(
        ("mara", "mara_wls", "lara_fm", "lara", "edf", "fifo"), description="methods compared, by name"
    )
    rivals: tuple[Rival, ...] = Field((), description="predictors compared beside flow matching and WLS")
    sets: tuple[Literal["id", "rl", "vit"], ...] = Field(("id", "rl", "vit"), description="task sets")
    loads: tuple[Probability, ...] = Field((0.04,), description="arrival rates p evaluated")
    num_roots: Positive = Field(3, description="workload roots")
    episodes_per_root: Positive = Field(20, description="episodes of each root, set and load")
    bootstrap_resamples: Positive = Field(2000, description="resamples of every interval")
    milp_seconds: PositiveFloat = Field(20.0, description="time limit of one clairvoyant optimum")


class TrackingConfig(Section):
    """Where runs are logged."""

    wandb: Literal["auto", "offline", "online", "disabled"] = Field(
        "auto", description="auto is online with an API key and offline without"
    )
    project: str = Field("mara_ray", description="W&B project")


class RunConfig(Section):
    """Everything a run depends on."""

    name: str = Field(description="name of the run; its directory is runs/<name>")
    seed: NonNegative = Field(0, description="root of every random number")
    cluster: ClusterConfig = ClusterConfig()
    curves: CurvesConfig
    predictor: PredictorConfig = PredictorConfig()
    workload: WorkloadConfig
    simulator: SimulatorConfig = SimulatorConfig()
    allocator: AllocatorConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: TrackingConfig = TrackingConfig()


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    files = resources.files("mara_ray.presets").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_config(preset: str, overrides: list[str] | tuple[str, ...] = ()) -> RunConfig:
    """Read a preset (a shipped name, or the path of a YAML file) and apply `a.b=c` overrides.

    Raises:
        UserError: unknown preset or key, or a value out of range; one line with the remedy.
    """
    tree = _read_preset(preset)
    for override in overrides:
        _apply_override(tree, override)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise UserError(_first_problem(error)) from error


def _read_preset(preset: str) -> dict[str, Any]:
    known = preset_names()
    if preset in known:
        return read_mapping(resources.files("mara_ray.presets") / f"{preset}.yaml", "preset", "install anew")
    if Path(preset).is_file():
        return read_mapping(Path(preset), "preset", "see the shipped presets")
    near = difflib.get_close_matches(preset, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"preset: {preset!r} is unknown; {hint}use one of {', '.join(known)} or a YAML file")


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise UserError(f"--set: {override!r} is not of the form section.field=value")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"--set: the value of {key!r} is not valid YAML: {text!r}") from error
    *parents, leaf = key.split(".")
    node = tree
    for parent in parents:
        node = node.setdefault(parent, {})
        if not isinstance(node, dict):
            raise UserError(f"--set: {key!r} goes below {parent!r}, which holds a plain value")
    node[leaf] = value


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path, _valid_keys(RunConfig), n=1, cutoff=0.0)
        return f"{path}: unknown key; the nearest valid one is {near[0]!r}"
    value = "" if problem["type"] == "missing" else f" {problem['input']!r}:"
    return f"{path}:{value} {problem['msg'].lower()}; set it with --set {path}=VALUE"


def _valid_keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, field in section.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            keys += _valid_keys(annotation, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys
