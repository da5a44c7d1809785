"""What a plan costs, in seconds, bytes and dollars: the one home of formulas."""
