# What type checkers read: the names that `__init__.py` loads when they are used.
from hulk.errors import HulkError as HulkError
from hulk.front import Comparison as Comparison
from hulk.front import Planned as Planned
from hulk.front import cluster as cluster
from hulk.front import compare as compare
from hulk.front import jobs as jobs
from hulk.front import load as load
from hulk.front import plan as plan
from hulk.view.pictures import Picture as Picture

__version__: str
