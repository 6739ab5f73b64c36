//! The option `environment` of programs: interpreters that exist, and environments that uv builds.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{clients_python, succeed};
use crate::lab::processes::Server;
use crate::support::{Home, Ran};

const FLOW: &str = r#"
name: environment
jobs:
  show:
    uses: command
    with:
      run: [python, -c, 'import sys, json, os; json.dump(sys.prefix, open(os.environ["ASSAY_OUTPUTS"] + "/prefix", "w"))']
      environment: {python: .venv/bin/python}
      outputs: {prefix: {json: prefix}}
"#;

fn write_flow(folder: &Path, text: &str) -> String {
    let flow = folder.join("flow.yaml");
    std::fs::write(&flow, text).unwrap();
    flow.display().to_string()
}

/// A virtual environment, and the folder of its packages.
fn create_venv(folder: &Path) -> (PathBuf, PathBuf) {
    let prefix = folder.canonicalize().unwrap().join(".venv");
    succeed(Command::new(clients_python()).args(["-m", "venv", "--without-pip"]).arg(&prefix));
    let version = prefix.join("lib").read_dir().unwrap().next().unwrap().unwrap().path();
    (prefix, version.join("site-packages"))
}

fn install_package(site: &Path, version: &str) {
    let info = site.join("thing.dist-info");
    std::fs::create_dir_all(&info).unwrap();
    std::fs::write(info.join("METADATA"), format!("Metadata-Version: 2.1\nName: thing\nVersion: {version}\n")).unwrap();
}

#[test]
fn another_version_of_a_package_is_another_experiment() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let (prefix, site) = create_venv(folder.path());
    let flow = write_flow(folder.path(), FLOW);
    let run = || {
        let ran = Ran::of(home.output(&["run", &flow, "--json"]));
        assert_eq!(ran.succeeded().task("show")["outputs"]["prefix"], prefix.display().to_string());
        ran.worked().len()
    };
    install_package(&site, "1.0");
    assert_eq!((run(), run()), (1, 0));
    install_package(&site, "1.1");
    assert_eq!((run(), run()), (1, 0));
    std::fs::remove_file(prefix.join("bin/python")).unwrap();
    let failed = Ran::of(home.output(&["run", &flow, "--json"]));
    assert!(failed.json.to_string().contains("environment.python"), "{:#}", failed.json);
}

#[test]
fn a_worker_checks_the_interpreter_that_the_run_was_planned_with() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (prefix, site) = create_venv(folder.path());
    install_package(&site, "1.0");
    let flow = write_flow(folder.path(), FLOW);
    let first = server.submit(&flow, &[]);
    // The worker starts only after a package has changed on it.
    install_package(&site, "1.1");
    let _worker = server.worker("node", &[]);
    let failed = server.finished(&first);
    assert!(failed.json.to_string().contains("thing==1.0 is missing, thing==1.1 was added"), "{:#}", failed.json);
    let second = server.finished(&server.submit(&flow, &[]));
    assert_eq!(second.succeeded().task("show")["outputs"]["prefix"], prefix.display().to_string());
}

#[test]
fn uv_builds_an_environment_from_its_lock_file() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let site = folder.path().join("uv");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "uv==0.13.9", "--target"];
    succeed(Command::new(clients_python()).args(pip).arg(&site));
    let bin = site.join("bin");
    let project = folder.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let text = "[project]\nname = \"trial\"\nversion = \"0.1.0\"\nrequires-python = \">=3.9\"\ndependencies = []\n";
    std::fs::write(project.join("pyproject.toml"), text).unwrap();
    succeed(Command::new(bin.join("uv")).args(["lock", "--project"]).arg(&project).env("UV_PYTHON", clients_python()));
    let flow = write_flow(folder.path(), &FLOW.replace("{python: .venv/bin/python}", "{uv: project/uv.lock}"));
    let cache = folder.path().join("cache");
    let path = std::env::join_paths(
        [bin].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let run = |more: &[&str]| {
        let mut command = home.command(&[&["run", &flow, "--json"], more].concat());
        command.env("XDG_CACHE_HOME", &cache).env("UV_PYTHON", clients_python());
        command.env("PATH", path.as_ref().unwrap());
        Ran::of(command.output().unwrap())
    };
    let first = run(&[]);
    let prefix = first.succeeded().task("show")["outputs"]["prefix"].clone();
    let environments = cache.canonicalize().unwrap().join("assay/environments");
    assert!(prefix.as_str().unwrap().starts_with(&environments.display().to_string()), "{prefix}");
    let log = |run: &str| String::from_utf8(home.output(&["logs", run, "show"]).stdout).unwrap();
    assert!(log("1").contains("uv built the environment"), "{}", log("1"));
    // A second run uses the same environment; a changed project builds another one.
    run(&["--force"]).succeeded();
    assert!(log("2").contains("was built earlier"), "{}", log("2"));
    std::fs::write(project.join("pyproject.toml"), format!("{text}\n[tool.thing]\nx = 1\n")).unwrap();
    let third = run(&[]);
    assert_ne!(third.succeeded().task("show")["outputs"]["prefix"], prefix);
}
