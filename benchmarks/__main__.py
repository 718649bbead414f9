"""Run every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

# What other benchmarks build on, not benchmarks themselves.
PARTS = {
    "energy_models",
    "energy_truth_causes",
    "energy_truth_page",
    "energy_turns",
    "gpu_state",
    "other_shapes",
    "public_dags",
    "quiet_turns",
    "recompute_graphs",
    "scale_graphs",
    "structured_graphs",
    "torch_model_steps",
    "torch_models_page",
}


def main() -> int:
    """Run the benchmarks one after another, each in its own process, and return the number that failed."""
    failed = []
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("_") or module.name in PARTS:
            continue
        print(f"\n== {module.name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{module.name}"], check=False).returncode:
            failed.append(module.name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
