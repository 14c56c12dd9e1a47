"""A coordination service that speaks the ZooKeeper client protocol."""
