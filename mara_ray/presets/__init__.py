"""The shipped run configurations, one YAML file each; the only place where they live."""
