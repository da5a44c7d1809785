"""Imported once by the process that all workers are forked from: what it has loaded, they have."""

from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.serve import work

work.warm_up(load_cluster("us4"), load_jobs("paper4")[-1:])
