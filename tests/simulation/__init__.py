"""Cells of whole members and their clients in one process, from one seed, under simulated trouble."""
