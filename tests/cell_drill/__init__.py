"""A drill for a cell of real processes under load: members are killed, paused, cut off, replaced, and left behind."""
