r"""A grid of runs (its YAML file comes first) as a Ray job; submitted again, it does only what is missing.

ray job submit --working-dir . --runtime-env jobs/runtime_env.yaml -- \
    python jobs/5_sweep.py tune_configs/quick.yaml --out /SHARED/sweep
"""

from mara_ray.job import run_job

if __name__ == "__main__":
    run_job("sweep")
