"""The border: files people write become values, and values become files."""
