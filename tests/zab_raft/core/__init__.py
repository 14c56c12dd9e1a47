"""Tests of the pure Raft core: units, scenarios, properties, the simulator, and the mutants it must find."""
