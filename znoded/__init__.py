"""A coordination service that speaks the ZooKeeper client protocol."""

__version__ = "0.1.0"
