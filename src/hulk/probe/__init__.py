"""What a cluster's network and machines really do: measured by an agent on each machine, written as a cluster file.

wire (who may talk, and how) < facts, link (what an agent looks at and measures) < agent (what answers) < control (whom
one command tells what to do) < survey (all machines, in what order) < links (what the figures say) < written, drift.
"""

from __future__ import annotations
