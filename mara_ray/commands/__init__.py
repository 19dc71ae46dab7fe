"""The command line, a file for each group of commands; `mara_ray.cli` puts them together."""
