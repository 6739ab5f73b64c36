//! Pools of workers that a cluster runs: the server submits *pilots*, jobs of the cluster that are worker nodes, and follows them.
//!
//! [`Engine`] is what a cluster has to offer: submitting, listing and cancelling jobs, and what their states mean. Each engine is one file,
//! and a line in [`find_engine`].

mod engine;
mod follow;
mod kubernetes;
mod plan;
mod slurm;

pub use follow::{Pilots, PoolView, Pools, TokenSource};
pub use plan::PoolSettings;
