//! `assay audit`: who changed what on a server.

use std::path::Path;
use std::process::ExitCode;

use assay_spec::printable;
use serde_json::{Value, json};

use crate::cli::CommandError;
use crate::lab_args::AuditArgs;
use crate::remote::Remote;
use crate::tables::format_table;
use crate::terminal::format_time;

pub async fn run(home: &Path, remote: Option<&Remote>, args: &AuditArgs) -> Result<ExitCode, CommandError> {
    let listed = match remote {
        Some(remote) => remote.get(format!("/api/v1/audit?limit={}", args.limit)).await?,
        None => {
            let store = super::existing_store(home).await?;
            json!({"actions": store.actions(args.limit.into(), None).await?})
        }
    };
    if args.json {
        super::print_json(&listed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let actions = listed["actions"].as_array().ok_or("the server's answer has no actions")?;
    let text = |value: &Value| printable(value.as_str().unwrap_or_default()).into_owned();
    let row = |action: &Value| {
        let time = action["at"].as_u64().map_or_else(|| "-".to_owned(), format_time);
        let token = action["token"].as_i64().map_or_else(|| "-".to_owned(), |token| token.to_string());
        vec![time, token, text(&action["origin"]), text(&action["action"]), text(&action["result"])]
    };
    let head = ["time", "token", "from", "action", "result"].map(str::to_owned);
    super::print_out(&format_table(&head, &actions.iter().map(row).collect::<Vec<_>>()))?;
    Ok(ExitCode::SUCCESS)
}
