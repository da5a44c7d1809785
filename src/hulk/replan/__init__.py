"""What to change when machines are lost or join: little moves, and only what pays back within the horizon."""

from hulk.replan.answer import JobChange, Refused, Replan
from hulk.replan.main import Change, replan

__all__ = ["Change", "JobChange", "Refused", "Replan", "replan"]
