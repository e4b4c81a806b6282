"""A model that kills workers. Alone in a file, so that workers which start in its place import little."""

import os
import signal
from pathlib import Path

from tests.laws.cases import BetaBernoulli


class Dies(BetaBernoulli):
    """Kills the process of its E-step, once for each file in a folder."""

    def __init__(self, folder=None, privacy=None, random_state=None):
        super().__init__(privacy, random_state)
        self.folder = folder

    def expected_statistics(self, records, posterior):
        for file in Path(self.folder).glob("die*"):
            try:
                file.unlink()
            except FileNotFoundError:  # another process took it
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return super().expected_statistics(records, posterior)
