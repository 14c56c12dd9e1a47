"""Tests of the log, the checkpoint and the replica."""
