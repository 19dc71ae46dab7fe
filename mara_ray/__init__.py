"""mara_ray: allocation of discrete compute nodes among learning tasks of unknown length."""

from mara_ray.learning_task import LearningTask
from mara_ray.results import load_results

__version__ = "0.1.0"
__all__ = ["LearningTask", "load_results"]
