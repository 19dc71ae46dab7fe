"""The full pipeline as a Ray job.

ray job submit --working-dir . --runtime-env jobs/runtime_env.yaml -- python jobs/0_run.py --preset standard
"""

import sys

from mara_ray.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["run"]
    main()
