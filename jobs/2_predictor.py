"""The predictor as a Ray job; done again, it does only what is missing.

ray job submit --working-dir . --runtime-env jobs/runtime_env.yaml -- python jobs/2_predictor.py ... --out PLACE
"""

import sys

from mara_ray.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["predictor", "train"]
    main()
