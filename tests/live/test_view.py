"""What is seen of a run."""

import io

import numpy as np
from rich.console import Console

from mara_ray.live.jobs import Jobs
from mara_ray.live.view import PlainView, TerminalView, band, view_of
from tests.live import live_worlds
from tests.live.test_live_run import job_of


def test_a_band_spans_the_samples():
    assert band(np.array([0.0, 10.0, 23.0]), 12) == "──────────o─|───────────"
    assert band(np.zeros(3), 0).strip() == "|"
    assert len(band(np.array([1.0, 5.0]), 1000)) == 24


def test_the_terminal_shows_nodes_jobs_and_events(tmp_path, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    view = view_of(console)
    assert isinstance(view, TerminalView)
    monkeypatch.setattr(live_worlds, "PlainView", lambda: view)
    jobs = Jobs(jobs=(job_of("quick", target=0.6), job_of("endless", target=0.01)))
    with view:
        live_worlds.play(jobs, live_worlds.method_of("lara"), tmp_path)
    shown = console.file.getvalue()
    for part in ("node 1", "quick", "endless", "steps still needed", "quick met its target in step", "1 met"):
        assert part in shown, part


def test_elsewhere_there_are_lines(capsys):
    view = view_of(Console(file=io.StringIO()))
    assert isinstance(view, PlainView)
    view.say("hello")
    assert capsys.readouterr().err == "schedule: hello\n"
