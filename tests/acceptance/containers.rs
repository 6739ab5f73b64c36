//! Programs in containers: `environment: {container: ..}` with podman, an image that is built here, and its own storage.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::{Home, Ran, children, signal, wait_for};

/// podman with its own storage and settings, which work for root and without systemd.
struct Podman {
    folder: TempDir,
    /// The ID of an image with a shell.
    image: String,
}

impl Podman {
    /// Imports an image with busybox. `None` if podman cannot run containers on this machine, such as in another container.
    fn prepare() -> Option<Podman> {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("root/bin")).expect("a folder");
        std::fs::copy("/bin/busybox", at("root/bin/busybox")).expect("tests/run installs busybox-static and podman");
        for name in ["sh", "cat", "sleep", "echo", "seq"] {
            std::os::unix::fs::symlink("busybox", at("root/bin").join(name)).expect("a link");
        }
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/graph\"\nrunroot = \"{0}/run\"\n",
            folder.path().display()
        );
        std::fs::write(at("storage.conf"), storage).expect("a file");
        let engine = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1000:1000\"]\nlog_driver = \"k8s-file\"\n\
            [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n";
        std::fs::write(at("containers.conf"), engine).expect("a file");
        let mut podman = Podman { folder, image: String::new() };
        let archive = podman.folder.path().join("root.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(podman.folder.path().join("root")).arg("-cf").arg(&archive).arg(".");
        assert!(tar.status().expect("tar starts").success());
        let imported = podman.run(&["import", "--quiet", archive.to_str().expect("UTF-8"), "assay-test:1"]);
        let text = String::from_utf8_lossy(&imported.stdout);
        podman.image = text.lines().last().unwrap_or_default().trim().to_owned();
        let tried = podman.run(&["run", "--rm", "--network", "host", &podman.image, "/bin/echo", "works"]);
        if tried.stdout == b"works\n" {
            return Some(podman);
        }
        eprintln!(
            "podman cannot run containers on this machine, so that they are not tested: {}{}",
            String::from_utf8_lossy(&imported.stderr),
            String::from_utf8_lossy(&tried.stderr)
        );
        None
    }

    fn variables(&self) -> [(&'static str, std::path::PathBuf); 2] {
        let at = |name: &str| self.folder.path().join(name);
        [("CONTAINERS_STORAGE_CONF", at("storage.conf")), ("CONTAINERS_CONF", at("containers.conf"))]
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new("podman").args(args).envs(self.variables()).output().expect("tests/run installs podman")
    }

    /// The IDs of all containers.
    fn containers(&self) -> String {
        String::from_utf8_lossy(&self.run(&["ps", "--all", "--quiet"]).stdout).trim().to_owned()
    }

    /// A workflow with one program in a container.
    fn workflow(&self, folder: &Path, script: &str, image: &str) -> String {
        let text = format!(
            "name: contained\njobs:\n  make:\n    uses: command\n    with:\n      run: [sh, -c, 'echo content > $ASSAY_OUTPUTS/made']\n      \
             outputs: {{made: made}}\n  use:\n    needs: [make]\n    uses: command\n    with:\n      run:\n        - /bin/sh\n        - -c\n        \
             - |\n          {script}\n      environment: {{container: '{image}'}}\n      inputs: {{made: '${{{{ needs.make.outputs.made }}}}'}}\n      \
             env: {{GREETING: \"hello there\"}}\n      metrics: {{loss: {{better: lower}}}}\n      outputs: {{copy: copy}}\n"
        );
        let file = folder.join("contained.yaml");
        std::fs::write(&file, text).expect("a file");
        file.display().to_string()
    }

    fn start(&self, home: &Home, args: &[&str]) -> Command {
        let mut command = home.command(args);
        command.envs(self.variables());
        command
    }

    fn run_workflow(&self, home: &Home, file: &str) -> Ran {
        Ran::of(self.start(home, &["run", file, "--json"]).output().expect("assay starts"))
    }
}

#[test]
fn a_program_runs_in_a_container_and_leaves_nothing_behind() {
    let Some(podman) = Podman::prepare() else { return };
    let (home, folder) = (Home::new(), tempfile::tempdir().expect("a folder"));
    let script = "cat $ASSAY_INPUTS/made > $ASSAY_OUTPUTS/copy; echo $GREETING from $(cat /proc/1/comm); \
        echo '{\"step\": 1, \"loss\": 0.5}' >> $ASSAY_METRICS; test ! -e /usr";
    let file = podman.workflow(folder.path(), script, &podman.image);
    let ran = podman.run_workflow(&home, &file);
    assert_eq!(ran.succeeded().task("use")["metrics"]["loss"], 0.5);
    let logs = String::from_utf8(home.output(&["logs", "latest", "use"]).stdout).expect("UTF-8");
    assert!(logs.contains("hello there from sh"), "{logs}");
    let copy = folder.path().join("copy");
    assert!(home.output(&["get", "latest", "use", "copy", "-o", copy.to_str().expect("UTF-8")]).status.success());
    assert_eq!(std::fs::read_to_string(copy).expect("the output"), "content\n");
    assert_eq!(podman.run_workflow(&home, &file).succeeded().worked(), Vec::<&str>::new(), "all of it is cached");
    assert_eq!(podman.containers(), "");

    let failure = |script: &str, image: &str| {
        let ran = podman.run_workflow(&home, &podman.workflow(folder.path(), script, image));
        ran.task("use")["error"].to_string()
    };
    let failed = failure("exit 7", &podman.image);
    assert!(failed.contains("`/bin/sh` exited with code 7"), "{failed}");
    let missing = failure("true", &format!("sha256:{}", "0".repeat(64)));
    assert!(missing.contains("podman could not create a container of"), "{missing}");
    let output = home.output(&["plan", &podman.workflow(folder.path(), "true", "assay-test:1")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && errors.contains("contained.yaml:") && errors.contains("sha256"), "{errors}");
    assert_eq!(podman.containers(), "");
}

#[test]
fn a_container_ends_with_its_run_and_with_its_executor() {
    let Some(podman) = Podman::prepare() else { return };
    let (home, folder) = (Home::new(), tempfile::tempdir().expect("a folder"));
    let file = podman.workflow(folder.path(), "sleep 600", &podman.image);
    for killed in ["run", "executor"] {
        let mut run = podman.start(&home, &["run", &file, "--json"]).spawn().expect("assay starts");
        wait_for("the container", || (!podman.containers().is_empty()).then_some(()));
        match killed {
            "run" => signal(run.id(), "INT"),
            _ => children(run.id(), "executor").iter().for_each(|executor| signal(*executor, "KILL")),
        }
        wait_for("the end of the container", || podman.containers().is_empty().then_some(()));
        let ended = run.wait().expect("the run ends");
        assert!(!ended.success());
    }
}
