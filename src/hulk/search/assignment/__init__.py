"""Which machines serve which job: a race of deals, each annealed, joined with groups that others have found."""
