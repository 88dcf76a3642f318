"""Whatever a public function is given, it returns or raises InputError: no other exception reaches the user."""

import os
import subprocess
import sys
from pathlib import Path

from support import wrong_calls


def test_wrong_arguments_are_one_sentence(tmp_path):
    paths = [str(Path(wrong_calls.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, wrong_calls.__file__, str(tmp_path)], env=environment, capture_output=True, text=True
    )
    *wrong, count = done.stdout.splitlines() or [done.stderr]
    assert wrong == [] and int(count) > 5000
