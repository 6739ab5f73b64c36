//! Layering, tidiness, simulation and acceptance: tests that look at the whole.
