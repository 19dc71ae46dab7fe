"""The same allocators over real trainings on a real Ray cluster."""
