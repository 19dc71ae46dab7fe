"""The comparison as a Ray job; done again, it does only what is missing.

ray job submit --working-dir . --runtime-env jobs/runtime_env.yaml -- python jobs/4_evaluate.py ... --out PLACE
"""

import sys

from mara_ray.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["evaluate"]
    main()
