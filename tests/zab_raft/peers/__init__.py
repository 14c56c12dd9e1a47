"""Tests of the connections between members."""
