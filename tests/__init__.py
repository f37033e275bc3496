"""Tests of Sluice; a package, so that test modules can share code by its full name."""
