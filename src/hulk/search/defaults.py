"""What a search may spend where nobody says otherwise: apart, so that the command line can show it at once."""

EVALUATIONS = 150_000
TIME_LIMIT = 60.0
WORKERS = 2
