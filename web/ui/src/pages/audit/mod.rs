//! The audit log of a server: who changed what.

use std::collections::BTreeMap;

use assay_store::ActionView;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::query::Choices;
use crate::server::Site;
use crate::templates::render;
use crate::views::format::{Moment, moment};

/// How many actions a page shows.
const PAGE: u64 = 100;

#[derive(Debug, Serialize)]
struct AuditPage {
    title: &'static str,
    live: bool,
    rows: Vec<ActionRow>,
    /// The address of the page with earlier actions.
    older: Option<String>,
}

#[derive(Debug, Serialize)]
struct ActionRow {
    at: Moment,
    /// The token with its scope, or nothing.
    token: String,
    origin: String,
    action: String,
    result: String,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    let wrong = |text: &str| Failure::bad_request(format!("`before` is `{text}`"), "give the number of an action");
    let before = choices.get("before").map(|text| text.parse::<i64>().map_err(|_| wrong(text))).transpose()?;
    let mut actions = site.store.actions(PAGE + 1, before).await?;
    let more = actions.len() > PAGE as usize;
    actions.truncate(PAGE as usize);
    let older = actions.last().filter(|_| more).map(|last| format!("/audit?before={}", last.id));
    let tokens = site.store.tokens().await?;
    let scopes: BTreeMap<i64, String> = tokens.into_iter().map(|token| (token.id, token.scope)).collect();
    let row = |ActionView { at, token, origin, action, result, .. }: ActionView| {
        let scope = |id: i64| scopes.get(&id).map(|scope| format!(" ({scope})")).unwrap_or_default();
        let token = token.map(|id| format!("token {id}{}", scope(id))).unwrap_or_default();
        ActionRow { at: moment(at), token, origin, action, result }
    };
    let rows = actions.into_iter().map(row).collect();
    render(&site, "audit.html", AuditPage { title: "Audit log", live: false, rows, older })
}
