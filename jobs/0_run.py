r"""The full pipeline as a Ray job; submitted again, it does only what is missing.

ray job submit --working-dir . --runtime-env jobs/runtime_env.yaml -- \
    python jobs/0_run.py --preset standard --out s3://BUCKET/standard
"""

from mara_ray.job import run_job

if __name__ == "__main__":
    run_job("run")
