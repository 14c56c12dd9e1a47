"""Who watches what, and which event goes to whom."""
