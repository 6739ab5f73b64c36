//! What is seen: the pages, their assets, and the JSON API, over one store.
//!
//! Every page is rendered here, on the server, and works as it stands; three small scripts add charts, live updates and
//! the tail of a log. The way of a request is always the same: a route, a few questions to the store, a view (plain
//! data, made by pure functions), a template or JSON.
//!
//! Invariants, each of them tested:
//!
//! - No page makes a browser ask anything of another machine: the assets are in the binary, and a Content-Security-Policy
//!   forbids the rest.
//! - The pages only read. What changes the store is below `/api/v1` (`lab`) and, for clients of MLflow, below `/api/2.0` (`mlflow`),
//!   and only where the server owns the store.
//! - Text from workflow files, logs and errors is escaped wherever it is shown, in HTML, in SVG and in charts.
//! - No request makes it panic, and a wrong one is answered with what is wrong and what to do.
//! - An uncertainty is shown wherever there are replicates, and none for a single observation. Cells that the
//!   data cannot distinguish are not ranked.
//! - What a chart shows can also be had as a table or as JSON, and no state is told by colour alone.
//! - A page that a reader has is not sent again: pages and answers have an ETag. Readers of live pages are notified of changes.
//!
//! Reading order: `server` for the routes, `pages` (a folder each), `api`; what they share is in `load` (the questions to
//! the store) and `views` (the pure functions). Adding a page: a folder in `pages` and a line in `server`.

mod api;
mod assets;
mod claims;
pub mod comparison;
mod error;
mod events;
mod lab;
mod load;
mod mlflow;
mod pages;
mod plugins;
mod query;
mod security;
mod server;
mod templates;
mod tls;
mod transmission;
mod views;

pub use claims::{JudgedRun, changed_params, judge_run, judge_tasks, latest_claims, recorded_workflow};
pub use lab::{Lab, Limiter, Limits, Reporter, hash_token};
pub use plugins::{PluginDependency, PluginIndex};
pub use server::{ServeError, router, serve, serve_lab};
pub use tls::Certificate;
