"""Small cases of all compiled code with every index checked: `NUMBA_BOUNDSCHECK=1 pytest tests/bounds`, which
`make test` runs. Without the checks they would show nothing, so they are not even collected."""

import sys
from pathlib import Path

from numba import config

sys.path.insert(0, str(Path(__file__).parent.parent))
collect_ignore_glob = [] if config.BOUNDSCHECK else ["*"]
