//! Simulated hosts and agents.
