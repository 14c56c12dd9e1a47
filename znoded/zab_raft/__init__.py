"""Consensus: the log and the checkpoint on disk, and what drives them.

`replica` is a member that stands alone. `cell` is a member of a cell, which drives `core` and speaks through `peers`.
"""
