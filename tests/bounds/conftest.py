"""Small cases of all compiled code with every index checked, as `make test` runs it (`NUMBA_BOUNDSCHECK=1`). Without
the checks they would show nothing, so they are not even collected."""

import sys
from pathlib import Path

from numba import config

sys.path.insert(0, str(Path(__file__).parent.parent))
collect_ignore_glob = [] if config.BOUNDSCHECK else ["*"]
