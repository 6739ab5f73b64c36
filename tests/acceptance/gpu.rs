//! Trainings on emulated GPUs: they train, and a failure of a device is one failed attempt of a known class.

use assay_gpu_emulator::Emulated;
use serde_json::Value;

use crate::support::{Home, Ran, fixture};

/// Runs a workflow on a backend, with the emulator instead of the vendors' libraries, with these parameters and
/// variables. Also returns the problems that the emulator found.
fn run(home: &Home, file: &str, backend: &str, parameters: &[&str], variables: &[(&str, &str)]) -> (Ran, Vec<String>) {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let mut command = home.command(&["run", &fixture(file), "--json", "-P", &format!("backend={backend}")]);
    command.args(parameters.iter().flat_map(|parameter| ["-P", parameter]));
    Emulated::set_up(&mut command, scratch.path());
    command.envs(variables.iter().copied());
    let ran = Ran::of(command.output().expect("assay starts"));
    (ran, Emulated::report(scratch.path()))
}

fn trains(backend: &str, wave: &str) {
    let home = Home::new();
    let (ran, problems) = run(&home, "gpu.yaml", backend, &[], &[("ASSAY_GPU_EMULATOR_WAVE", wave)]);
    assert_eq!((ran.succeeded().state(), problems), ("succeeded", vec![]));
    for task in ["train", "either"] {
        let loss = ran.task(task)["metrics"]["train/loss"].as_f64();
        assert!(loss.is_some_and(f64::is_finite), "{:#}", ran.task(task));
    }
    let kept = std::fs::read_dir(home.store().join("kernels")).expect("compiled kernels are kept").count();
    assert!(kept > 0);
}

#[test]
fn a_training_on_cuda() {
    trains("cuda", "32");
}

#[test]
fn a_training_on_rocm_with_waves_of_32_and_of_64() {
    trains("rocm", "32");
    trains("rocm", "64");
}

/// A small version of the catalog's quickstart: prepare, then train (both families), quantize, export and benchmark on the device.
fn runs_the_quickstart(backend: &str, wave: &str) {
    let home = Home::new();
    let small = ["examples=32", "steps=4", "dim=8", "batch_size=4", "replicates=1"];
    let (ran, problems) = run(&home, "quickstart.yaml", backend, &small, &[("ASSAY_GPU_EMULATOR_WAVE", wave)]);
    assert_eq!((ran.succeeded().state(), problems), ("succeeded", vec![]));
    let number = |address: String, name: &str| {
        let found = ran.task(&address)["metrics"][name].as_f64().filter(|number| number.is_finite());
        found.unwrap_or_else(|| panic!("no finite number `{name}` in {:#}", ran.task(&address)))
    };
    for cell in ["chunk=16,job=ten,states=32", "job=transformer"] {
        assert!(number(format!("quantize[{cell}]#1"), "quantized/loss") > 0.0);
        assert!(number(format!("export[{cell}]#1"), "export/max_difference") <= 1e-4);
        assert!(number(format!("benchmark[{cell}]#1"), "latency/int8/64/median") > 0.0);
    }
    for task in ran.tasks().iter().filter(|task| task["job"] != "data") {
        let attempts = home.attempts(&ran, task["address"].as_str().expect("an address"));
        assert!(matches!(&attempts[..], [attempt] if attempt.backend == backend), "{attempts:?}");
    }
}

#[test]
fn the_quickstart_on_cuda() {
    runs_the_quickstart("cuda", "32");
}

#[test]
fn the_quickstart_on_rocm_with_waves_of_32() {
    runs_the_quickstart("rocm", "32");
}

#[test]
fn the_quickstart_on_rocm_with_waves_of_64() {
    runs_the_quickstart("rocm", "64");
}

/// Two trainings that need one device each, and the numbers of their devices. Other results are in the run.
fn two_trainings(home: &Home, backend: &str, variables: &[(&str, &str)]) -> (Ran, [u64; 2]) {
    let variables = [variables, &[("ASSAY_GPU_EMULATOR_DEVICES", "2")]].concat();
    let (ran, problems) = run(home, "gpu.yaml", backend, &[], &variables);
    assert_eq!(problems, [""; 0]);
    let device = |task: &str| {
        let attempts = home.attempts(&ran, task);
        let executor = attempts.last().and_then(|attempt| attempt.executor.as_ref()).expect("it greeted");
        assert_eq!(executor["devices"], 2, "{executor:#}");
        let details = executor["device"]["details"].as_array().expect("details").iter();
        let mut numbers = details.filter_map(|detail| detail.as_str()?.strip_prefix("device ")?.parse().ok());
        numbers.next_back().expect("the number of the device")
    };
    let devices = ["train", "either"].map(device);
    (ran, devices)
}

/// They run at the same time: if one ran after the other, both would have the first device.
fn on_two_devices(backend: &str) {
    let (ran, mut devices) = two_trainings(&Home::new(), backend, &[]);
    assert_eq!(ran.succeeded().state(), "succeeded");
    devices.sort_unstable();
    assert!(devices == [0, 1] || processors() < 2, "{devices:?}");
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

#[test]
fn two_trainings_on_two_devices_of_cuda() {
    on_two_devices("cuda");
}

#[test]
fn two_trainings_on_two_devices_of_rocm() {
    on_two_devices("rocm");
}

#[test]
fn a_lost_device_does_not_take_the_other_with_it() {
    let (ran, devices) = two_trainings(&Home::new(), "cuda", &[("ASSAY_GPU_EMULATOR_FAIL", "lost:20@1")]);
    for (task, device) in ["train", "either"].into_iter().zip(devices) {
        let task = ran.task(task);
        if device == 0 {
            assert_eq!(task["state"], "succeeded", "{task:#}");
        } else {
            assert_eq!(
                (&task["state"], &task["error"]["class"]),
                (&"failed".into(), &"unavailable".into()),
                "{task:#}"
            );
        }
    }
    assert!(devices.contains(&1) || processors() < 2);
}

#[test]
fn one_device_is_for_one_training_at_a_time() {
    let home = Home::new();
    let (ran, problems) = run(&home, "gpu.yaml", "cuda", &[], &[]);
    assert_eq!((ran.succeeded().state(), problems), ("succeeded", vec![]));
    let [first, second] = ["train", "either"].map(|task| {
        let attempts = home.attempts(&ran, task);
        (attempts[0].began_at, attempts[0].ended_at.expect("it ended"))
    });
    assert!(first.1 <= second.0 || second.1 <= first.0, "{first:?} beside {second:?}");
}

#[test]
fn each_device_is_listed() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    for backend in ["cuda", "rocm"] {
        let mut command = Home::new().command(&["backends", "--json"]);
        Emulated::set_up(&mut command, scratch.path());
        let output = command.env("ASSAY_GPU_EMULATOR_DEVICES", "3").output().expect("assay starts");
        let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let backends = listed["backends"].as_array().expect("a list").iter();
        let devices: Vec<&str> = backends
            .filter(|listed| listed["backend"] == backend)
            .filter_map(|listed| listed["hello"]["device"]["details"].as_array()?.last()?.as_str())
            .collect();
        assert_eq!(devices, ["device 0", "device 1", "device 2"], "{listed:#}");
    }
}

/// Injects a failure on the device: its trainings fail with this class and these words, and the worker survives.
#[track_caller]
fn fails_as(fail: &str, class: &str, words: &[&str]) {
    let (ran, problems) = run(&Home::new(), "gpu.yaml", "cuda", &[], &[("ASSAY_GPU_EMULATOR_FAIL", fail)]);
    assert_eq!((ran.state(), ran.code), ("failed", Some(1)), "{fail}: {:#}", ran.json);
    assert_eq!(ran.task("data")["state"], "succeeded");
    for task in ["train", "either"] {
        let error = &ran.task(task)["error"];
        assert_eq!((&error["class"], &ran.task(task)["attempts"]), (&class.into(), &1.into()), "{fail}: {error:#}");
        let message = error["message"].as_str().unwrap_or_default();
        for word in words {
            assert!(message.contains(word), "{fail}: `{message}` does not say `{word}`");
        }
    }
    assert_eq!(problems, [""; 0], "{fail}");
}

#[test]
fn a_device_without_room_is_out_of_memory() {
    fails_as("bytes:33600000", "oom", &["MiB were requested", "are free"]);
}

#[test]
fn a_lost_device_is_unavailable() {
    fails_as("lost:200", "unavailable", &["the device was lost", "CUDA_ERROR_DEVICE_UNAVAILABLE"]);
}

#[test]
fn a_kernel_fault_is_a_crash() {
    fails_as("fault:200", "crashed", &["a kernel failed on the device", "CUDA_ERROR_ILLEGAL_ADDRESS"]);
}

/// Without the emulator, a device may exist or not; if none exists, one line states why, and tasks with other backends
/// run.
#[test]
fn without_a_device_one_line_says_so() {
    let home = Home::new();
    let output = home.output(&["backends", "--json"]);
    let backends: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let backends = backends["backends"].as_array().expect("a list");
    let cuda = backends.iter().find(|backend| backend["backend"] == "cuda").expect("cuda is built in");
    let Some(message) = cuda["failure"]["message"].as_str() else {
        assert!(cuda["hello"]["device"]["name"].is_string(), "{cuda:#}");
        return;
    };
    assert_eq!(cuda["failure"]["class"], "unavailable", "{cuda:#}");
    assert!(message.starts_with("the backend `cuda` cannot be used here: ") && !message.contains('\n'), "{message}");
    let ran = home.run("gpu.yaml", &[]);
    assert_eq!((ran.state(), &ran.task("either")["state"]), ("failed", &"succeeded".into()), "{:#}", ran.json);
    assert_eq!(ran.task("train")["error"]["class"], "unavailable", "{:#}", ran.json);
    assert!(ran.stderr.contains(message), "{}", ran.stderr);
}
