//! `assay allocate`: pools of workers that a cluster runs.

use std::process::ExitCode;

use assay_server::PoolSettings;
use assay_spec::printable;
use serde_json::{Value, json};

use crate::cli::CommandError;
use crate::lab_args::{AllocateCommand, PoolArgs};
use crate::remote::Remote;
use crate::tables::format_table;

pub async fn run(remote: &Remote, command: AllocateCommand) -> Result<ExitCode, CommandError> {
    match command {
        AllocateCommand::Slurm(args) => send_pool(remote, "slurm", *args).await?,
        AllocateCommand::Kubernetes(args) => send_pool(remote, "kubernetes", *args).await?,
        AllocateCommand::List(args) => {
            let answer = remote.get("/api/v1/pools".into()).await?;
            if args.json {
                super::print_json(&answer)?;
            } else {
                list_pools(&answer)?;
            }
        }
        AllocateCommand::Remove { name } => {
            remote.post("/api/v1/pools/remove".into(), &json!({"name": name})).await?;
            super::print_out(&format!("the pool {name} is removed, and its jobs are cancelled"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn send_pool(remote: &Remote, engine: &str, args: PoolArgs) -> Result<(), CommandError> {
    let settings = read_settings(engine, args)?;
    remote.post("/api/v1/pools".into(), &serde_json::to_value(&settings)?).await?;
    let (name, max) = (settings.name, settings.max);
    super::print_out(&format!("the pool {name} has up to {max} jobs; `assay allocate list` shows them"))
}

fn read_settings(engine: &str, args: PoolArgs) -> Result<PoolSettings, CommandError> {
    let mut settings = PoolSettings {
        options: args.options,
        max: args.max,
        grow_seconds: args.grow,
        idle_seconds: args.idle,
        signal_seconds: args.signal,
        cpus: args.cpus,
        labels: args.labels.into_iter().collect(),
        server: args.reach,
        program: args.program,
        image: args.image,
        ..PoolSettings::new(&args.name, engine)
    };
    if !args.backends.is_empty() {
        settings.backends = args.backends.into_iter().collect();
    }
    settings.check()?;
    Ok(settings)
}

fn list_pools(answer: &Value) -> Result<(), CommandError> {
    let pools: Vec<&Value> = answer["pools"].as_array().into_iter().flatten().collect();
    if pools.is_empty() {
        crate::terminal::print_line("there are no pools; add one with `assay allocate slurm`");
        return Ok(());
    }
    let head = ["pool", "engine", "at most", "job", "state"].map(str::to_owned);
    let mut rows = Vec::new();
    for pool in &pools {
        let text = |key: &str| pool["settings"][key].as_str().unwrap_or_default().to_owned();
        let first = [text("name"), text("engine"), pool["settings"]["max"].to_string()];
        let jobs: Vec<(&String, &Value)> = pool["jobs"].as_object().into_iter().flatten().collect();
        if jobs.is_empty() {
            rows.push([&first[..], &["-".to_owned(), "-".to_owned()]].concat());
        }
        for (id, state) in jobs {
            let state = printable(state.as_str().unwrap_or_default()).into_owned();
            rows.push([&first[..], &[id.clone(), state]].concat());
        }
    }
    super::print_out(&format_table(&head, &rows))?;
    for pool in &pools {
        let name = pool["settings"]["name"].as_str().unwrap_or_default();
        for remark in pool["remarks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            crate::terminal::print_line(format_args!("{name}: {}", printable(remark)));
        }
    }
    Ok(())
}
