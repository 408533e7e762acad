"""Starting a script or module as several real processes that talk over gloo."""

import os
import subprocess
import sys


def launch(arguments, processes, timeout=300, **options):
    """Run ``accelerate launch`` on the CPU with one thread per process; what it printed and its exit code."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(processes)]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command += ["--multi_gpu"] if processes > 1 else []  # accelerate's word for several processes on one machine
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=timeout, **options
    )
