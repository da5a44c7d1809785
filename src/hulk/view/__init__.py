"""What the page shows: pure functions from a plan to one JSON document, and the report that holds it."""
