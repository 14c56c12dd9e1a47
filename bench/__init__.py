"""Measures znoded, and a real ZooKeeper beside it."""
