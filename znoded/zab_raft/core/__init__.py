"""Consensus as a pure machine: messages and ticks in, one Ready out. No reactor, socket, file, clock or thread.

`node.Node` is the way in. The design is that of etcd-io/raft; docs say where it departs from it and why.
"""
