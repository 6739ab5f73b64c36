//! The client of a server: its API, and commands that it carries out instead of this machine.

use std::path::PathBuf;

use assay_server::RunStateName;
use assay_worker::{ServerAddress, TransferError, Transport};
use serde_json::{Value, json};

use crate::cli::CommandError;
use crate::commands::Printed;

/// The variable that holds a token.
pub const TOKEN: &str = "ASSAY_TOKEN";

/// The server of a command line.
pub struct Target {
    pub address: String,
    /// A PEM file with the authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
}

/// A server.
#[derive(Clone)]
pub struct Remote {
    transport: Transport,
}

impl Remote {
    /// The server at an address, with the token of this process's environment.
    ///
    /// # Errors
    /// If the address is invalid, or the file of certificates cannot be read.
    pub fn new(target: &Target) -> Result<Remote, CommandError> {
        let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        let address = ServerAddress::parse(&target.address)?;
        Ok(Remote { transport: Transport::new(address, token, target.ca.as_deref())? })
    }

    /// The server at an address, with a token.
    ///
    /// # Errors
    /// If the address is invalid.
    pub fn with_token(address: &str, token: Option<String>) -> Result<Remote, CommandError> {
        Ok(Remote { transport: Transport::new(ServerAddress::parse(address)?, token, None)? })
    }

    /// Transfers files.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    async fn send_request(
        &self,
        work: impl FnOnce(&Transport) -> Result<String, TransferError> + Send + 'static,
    ) -> Result<Value, CommandError> {
        let transport = self.transport.clone();
        let server = transport.server().to_string();
        let answer = tokio::task::spawn_blocking(move || work(&transport)).await?;
        let text = answer.map_err(|error| match error {
            TransferError::Refused { message, .. } => message,
            TransferError::Failed(why) => format!("cannot reach the server {server}: {why}"),
        })?;
        Ok(serde_json::from_str(&text)
            .map_err(|error| format!("the answer of {server} is not that of an Assay server: {error}"))?)
    }

    /// Gets JSON from a path of the API.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses.
    pub async fn get(&self, path: String) -> Result<Value, CommandError> {
        self.send_request(move |transport| transport.get_text(&path)).await
    }

    /// Posts JSON to a path of the API.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses.
    pub async fn post(&self, path: String, body: &Value) -> Result<Value, CommandError> {
        let body = body.to_string();
        self.send_request(move |transport| transport.post_json(&path, &body)).await
    }

    /// Carries out a reading command there: its output, whether that is all, and the cursor for the next request.
    ///
    /// # Errors
    /// As [`Remote::post`], and if the command fails there.
    pub async fn run_command(&self, args: &[String], cursor: &Value) -> Result<(Printed, bool, Value), CommandError> {
        let width = console::Term::stdout().size_checked().map(|(_, columns)| columns);
        let server = self.transport.server().to_string();
        let request = json!({"args": args, "width": width, "cursor": cursor, "server": server});
        let answer = self.post("/api/v1/reports".into(), &request).await?;
        let part = |key: &str| answer[key].as_str().map(str::to_owned);
        let printed = Printed { out: part("out"), err: part("err") };
        Ok((printed, answer["over"].as_bool().unwrap_or(true), answer["cursor"].clone()))
    }

    /// The number of a run that is named by its number or by `latest`.
    ///
    /// # Errors
    /// As [`Remote::get`], and if there is no run.
    pub async fn find_run(&self, text: &str) -> Result<i64, CommandError> {
        if text != "latest" {
            return text.parse().map_err(|_| format!("`{text}` is not a run: give its number, or `latest`").into());
        }
        let runs = self.get("/api/runs?limit=1".into()).await?;
        runs[0]["id"].as_i64().ok_or_else(|| "there are no runs on this server yet".into())
    }

    /// The state of a run, and its tasks by their states.
    ///
    /// # Errors
    /// As [`Remote::get`].
    pub async fn run_state(&self, run: i64) -> Result<(RunStateName, Value), CommandError> {
        let view = self.get(format!("/api/runs/{run}")).await?;
        let state = view["summary"]["state"].as_str().and_then(RunStateName::from_name);
        let state = state.ok_or("the server's answer has no state of the run")?;
        Ok((state, view["summary"]["states"].clone()))
    }
}
