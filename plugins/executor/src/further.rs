//! A further process of this executor, which runs one step, for steps that measure over several processes.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use assay_protocol::{Failure, FailureClass, WORKER};
use assay_steps::{Context, StepError, Values};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::Attempt;

/// How often the process is polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many bytes of its output are shown if it ends without a result.
const MOST_SHOWN: usize = 2000;

/// The relevant fields of the output of `--step`.
#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    failure: Option<Failure>,
    #[serde(default)]
    values: Values,
}

impl Attempt<'_> {
    /// Runs a step in a separate process of this executor's group, so that ending the group also ends it.
    pub(crate) fn run_further_process(&self, kind: &str, config: &Value) -> Result<Values, StepError> {
        let folder = self.workdir.join("further-process");
        std::fs::create_dir_all(&folder).map_err(|error| io_failure("make", &folder, &error))?;
        let result = self.run_in(&folder, kind, config);
        // The folder of the attempt is removed as a whole, so errors do not matter.
        let _ = std::fs::remove_dir_all(&folder);
        result
    }

    fn run_in(&self, folder: &Path, kind: &str, config: &Value) -> Result<Values, StepError> {
        let [step, out, log] = ["step.json", "out.json", "log.txt"].map(|name| folder.join(name));
        let request = json!({
            "kind": kind, "config": config, "artifacts": self.artifacts, "workdir": folder.join("work"),
            "threads": self.threads, "replicate": self.replicate,
        });
        std::fs::write(&step, request.to_string()).map_err(|error| io_failure("write", &step, &error))?;
        let file = |path: &Path| File::create(path).map_err(|error| io_failure("write", path, &error));
        let program =
            std::env::current_exe().map_err(|error| StepError::failed(format!("no program file: {error}")))?;
        // This process may itself have been started with `--step`.
        let own = std::env::args_os().skip(1).take_while(|argument| argument != "--step");
        let mut command = Command::new(&program);
        command.args(own).arg("--step").arg(&step);
        // It dies with this process, not with the worker.
        command.env(WORKER, std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&log)?);
        let child = command.spawn().map_err(|error| io_failure("start", &program, &error))?;
        self.wait_for_exit(child)?;
        let printed = std::fs::read_to_string(&out).unwrap_or_default();
        let Ok(summary) = serde_json::from_str::<Summary>(&printed) else {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let start = said.char_indices().rev().nth(MOST_SHOWN).map_or(0, |(at, _)| at);
            let end = said.get(start..).unwrap_or_default().trim();
            return Err(StepError::failed(format!(
                "a further process exited without a result; the end of its output: {end}"
            )));
        };
        match summary.failure {
            None => Ok(summary.values),
            Some(Failure { class, message, hint }) => Err(match class {
                FailureClass::Oom => StepError::OutOfMemory(message),
                FailureClass::Check => StepError::Check { message, hint },
                FailureClass::Unavailable => StepError::Lost(message),
                _ => StepError::Failed { message, hint },
            }),
        }
    }

    /// Waits for a process, or kills it when the step must stop.
    fn wait_for_exit(&self, mut child: Child) -> Result<(), StepError> {
        loop {
            match child.try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if self.cancelled() => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(StepError::Cancelled);
                }
                Ok(None) => std::thread::sleep(LOOK_EVERY),
                Err(error) => return Err(StepError::failed(format!("cannot wait for a further process: {error}"))),
            }
        }
    }
}

fn io_failure(what: &str, path: &Path, error: &std::io::Error) -> StepError {
    StepError::failed(format!("cannot {what} `{}`: {error}", path.display()))
}
