"""The connections between the members of a cell: who may speak, what is said, and how a state is handed over.

`peers.Peers` is what a replica uses. `wire`, `snapshot_wire`, `handshake` and `founding` are pure.
"""
