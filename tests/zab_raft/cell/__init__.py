"""Whole replicas of a cell in one process: real disks, a clock and a network that the test drives."""
