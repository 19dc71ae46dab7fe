"""mara_ray: allocation of discrete compute nodes among learning tasks of unknown length."""

__version__ = "0.1.0"
