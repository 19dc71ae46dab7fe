"""mara_ray: allocation of discrete compute nodes among learning tasks of unknown length."""

from mara_ray.learning_task import LearningTask

__all__ = ["LearningTask", "__version__"]

__version__ = "0.1.0"
