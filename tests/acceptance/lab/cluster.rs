//! `assay run --on` with commands that replace those of Slurm: jobs are processes of this machine. `tests/slurm` runs on Slurm itself.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Home, fixture};

/// Submits a job: the script on standard input becomes a process in a separate session.
const SBATCH: &str = "#!/bin/sh
cd \"$(dirname \"$0\")\" || exit 1
id=$(($(ls jobs | wc -l) + 1))
cat > jobs/$id
SLURM_JOB_ID=$id SLURM_CPUS_ON_NODE=2 SLURM_TMPDIR=\"$PWD\" setsid sh jobs/$id > log-$id 2>&1 < /dev/null &
echo $! > pid-$id
echo $id
";

/// Lists the jobs. This version has no JSON. The process of an ended job may be a zombie.
const SQUEUE: &str = "#!/bin/sh
[ \"$1\" = --json ] && exit 1
cd \"$(dirname \"$0\")\" || exit 1
for id in $(ls jobs); do
  if grep -q '^State:.[^Z]' /proc/$(cat pid-$id)/status 2> /dev/null; then echo \"$id|RUNNING|None\"; else echo \"$id|COMPLETED|None\"; fi
done
";

const SCANCEL: &str = "#!/bin/sh
cd \"$(dirname \"$0\")\" || exit 1
shift
for id in \"$@\"; do kill -TERM $(cat pid-$id) 2> /dev/null; done
exit 0
";

/// A command whose `PATH` begins with the commands of the cluster.
fn on_cluster(home: &Home, folder: &Path, args: &[&str]) -> Command {
    std::fs::create_dir_all(folder.join("jobs")).expect("a folder");
    for (name, text) in [("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)] {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("an executable script");
    }
    let mut command = home.command(args);
    command.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default()));
    command
}

#[test]
fn a_run_on_a_cluster_ends_with_the_verdicts_on_its_claims() {
    let (home, folder) = (Home::new(), tempfile::tempdir().expect("a temporary folder"));
    let file = fixture("claims.yaml");
    let args = ["run", &file, "--on", "slurm", "--pilots", "1", "-P", "replicates=2"];
    let output = on_cluster(&home, folder.path(), &[&args[..], &["--json"]].concat()).output().expect("assay starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    assert_eq!((&json["state"], output.status.code()), (&"succeeded".into(), Some(0)), "{json:#}\n{errors}");
    let claims = json["claims"].as_array().expect("verdicts");
    assert_eq!(claims.len(), 8, "{json:#}");
    let verdict = |id: &str| claims.iter().find(|claim| claim["id"] == id).map(|claim| claim["verdict"].clone());
    for (id, expected) in [("five-times", "refuted"), ("sum", "consistent"), ("gpu", "not_tested")] {
        assert_eq!(verdict(id), Some(expected.into()), "{json:#}");
    }
    // The same for a person; the results are cached, so no job is submitted.
    let output = on_cluster(&home, folder.path(), &args).output().expect("assay starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (table, below) = (printed.find("seconds"), printed.find("five-times: refuted"));
    assert!(table.is_some() && table < below, "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
}
