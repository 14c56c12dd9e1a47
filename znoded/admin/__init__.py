"""HTTP for operators: health, metrics, and the four-letter words as JSON."""
