"""A member of a cell: its replica, which drives the Raft core, and who the members are."""
