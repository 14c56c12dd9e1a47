"""Consensus: the log on disk, the checkpoint and the replica that drives them."""
