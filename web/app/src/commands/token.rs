//! `assay token`: the tokens with which other machines use a server.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use assay_spec::printable;
use assay_store::{NewAction, Store, TokenView};
use serde_json::json;

use crate::cli::CommandError;
use crate::lab_args::{Scope, TokenCommand};
use crate::tables::format_table;
use crate::terminal::{format_time, print_line};

pub async fn run(home: &Path, command: TokenCommand) -> Result<ExitCode, CommandError> {
    let store = Store::open(home).await?;
    let done = run_command(&store, command).await;
    store.close().await;
    done
}

/// Creates a token; returns its number and itself.
///
/// # Errors
/// If the store cannot be written.
pub async fn create_token(
    store: &Store,
    scope: Scope,
    expires: Option<Duration>,
) -> Result<(i64, String), CommandError> {
    let token = random_token()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let end = expires.map(|period| u64::try_from((now + period).as_millis()).unwrap_or(u64::MAX));
    let id = store.create_token(&assay_ui::hash_token(&token), scope.name(), end).await?;
    Ok((id, token))
}

async fn run_command(store: &Store, command: TokenCommand) -> Result<ExitCode, CommandError> {
    match command {
        TokenCommand::Create { scope, expires } => {
            let (id, token) = create_token(store, scope, expires).await?;
            record_command(store, format!("create token {id} with the scope `{}`", scope.name())).await?;
            print_line(format_args!("token {id}; it is shown only this once, since the store keeps only its hash"));
            super::print_out(&token)?;
        }
        TokenCommand::List { json } => {
            let tokens = store.tokens().await?;
            if json {
                super::print_json(&json!({ "tokens": tokens }))?;
            } else {
                let head = ["token", "scope", "made", "expires", "revoked"].map(str::to_owned);
                let time = |at: Option<u64>| at.map_or_else(|| "-".to_owned(), format_time);
                let row = |token: &TokenView| {
                    let made = format_time(token.created_at);
                    vec![
                        token.id.to_string(),
                        token.scope.clone(),
                        made,
                        time(token.expires_at),
                        time(token.revoked_at),
                    ]
                };
                super::print_out(&format_table(&head, &tokens.iter().map(row).collect::<Vec<_>>()))?;
            }
        }
        TokenCommand::Revoke { token } => {
            store.revoke_token(token).await?;
            record_command(store, format!("revoke token {token}")).await?;
            print_line(format_args!("token {token} is revoked"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Records a command in the audit log, with the user who ran it.
async fn record_command(store: &Store, action: String) -> Result<(), CommandError> {
    let user = std::env::var("USER").unwrap_or_default();
    let user = if user.is_empty() { rustix::process::getuid().as_raw().to_string() } else { user };
    let origin = format!("command line of {}", printable(&user));
    store.record_action(NewAction { token: None, origin, action, result: "done".to_owned() }).await?;
    Ok(())
}

/// 256 random bits.
fn random_token() -> Result<String, CommandError> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
