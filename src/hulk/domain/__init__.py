"""What Hulk speaks of: clusters, models, jobs and plans, as frozen values in SI units."""
