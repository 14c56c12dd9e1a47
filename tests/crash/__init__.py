"""What is acknowledged stays: cut, damage, fill and kill, then start again."""
