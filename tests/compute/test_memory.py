"""Memory that a chunk freed is there for the next one."""

import os
import platform
import subprocess
import sys

import pytest

CHURN = """
import resource, sys
import numpy as np
from vips._compute.memory import keep_freed_memory

def chunk():
    return [np.ones(size) for size in (400_000, 300_000, 500_000)]  # 9.6 MB

if "keep" in sys.argv:
    keep_freed_memory()
np.ones(400_000)
chunk()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    chunk()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(*arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC", "GLIBC"))}
    command = [sys.executable, "-c", CHURN, *arguments]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_freed_memory_is_used_again():
    assert 10 * page_faults("keep") < page_faults()
