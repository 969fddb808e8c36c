"""May these brokers be restarted, one after the other? A gate for pipelines.

    python plan_in_ci.py 127.0.0.1:2181/kafka 1 2 3 && ./rolling-restart.sh 1 2 3

`kctl plan` reads the cluster, lets a copy of the controller decide what would happen, and changes
nothing; `--fail-if` sets its exit code, so a line of shell does as well:

    kctl plan -z 127.0.0.1:2181/kafka --shutdown 3 --fail-if 'offline>0' || exit 1
"""

import subprocess
import sys

CONDITIONS = ("newly_offline>0", "newly_under_min_isr>0")
HELD = 1
"""The exit code of `kctl plan` if one of the conditions holds; others are errors."""


def may_restart(zookeeper: str, broker: str) -> bool:
    command = [sys.executable, "-m", "kctl", "plan", "--zookeeper", zookeeper, "--shutdown", broker]
    for condition in CONDITIONS:
        command += ["--fail-if", condition]
    done = subprocess.run(command, check=False)
    if done.returncode not in (0, HELD):
        sys.exit(done.returncode)
    return done.returncode == 0


def main(zookeeper: str, *brokers: str) -> int:
    refused = [broker for broker in brokers if not may_restart(zookeeper, broker)]
    for broker in refused:
        print(
            f"broker {broker} must stay: partitions would go offline or below min.insync.replicas"
        )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
