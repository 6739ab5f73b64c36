//! Training steps that are replayed as graphs: their bits are those of normal steps, whatever happens in between.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use assay_cuda::Cuda;
use assay_gpu::Driver;
use assay_gpu_emulator::{Emulated, emulated};
use assay_models::{
    Batch, Blueprint, GradientAccumulator, MicroBatch, Model, ModelConfig, Objective, Parameter, Precision, Task,
    Training, Weight,
};
use assay_rocm::Rocm;
use assay_tensor::{
    AdamW, Class, DType, Device, Feed, HostData, Replay, Replayer, Tensor, TensorError, Update, adamw_all, clip,
};
use serde_json::{Value, json};

use crate::counting::{Counting, Counts};

fn clean(found: &Emulated) {
    assert_eq!(found.problems, [""; 0]);
}

/// A device whose calls are counted.
fn counted(driver: impl Driver) -> (Device, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    (assay_gpu::device(Arc::new(Counting(driver, counts.clone()))), counts)
}

fn cuda() -> (Device, Arc<Counts>) {
    counted(Cuda::open(0, None).unwrap())
}

/// A training with dropout, a limit of the norm and a learning rate that changes from step to step.
struct Trainer {
    model: Blueprint,
    moments: BTreeMap<String, (Tensor, Tensor)>,
    replayer: Replayer,
    precision: Precision,
    step: u64,
}

impl Trainer {
    fn new(config: &Value, objective: Objective, device: &Device, replayer: Replayer) -> Trainer {
        let config: ModelConfig = serde_json::from_value(config.clone()).unwrap();
        let task = Task { vocabulary: 5, max_length: 16, objective };
        let model = Model::fresh(device, &config, &task, 7, DType::F32).unwrap();
        let zeros = |value: &Tensor| Tensor::zeros(device, value.dims(), DType::F32).unwrap();
        let each = |(name, parameter): (&str, &Parameter)| {
            let value = dense(parameter);
            (name.to_owned(), (zeros(value), zeros(value)))
        };
        let moments = model.parameters().iter().map(each).collect();
        Trainer { model: model.into_blueprint(), moments, replayer, precision: Precision::F32, step: 0 }
    }

    /// One step; returns the bits of its results.
    fn step(&mut self, sequences: &[&[u32]]) -> Result<Vec<u64>, TensorError> {
        self.step += 1;
        let step = self.step;
        let model = &mut self.model;
        let settings =
            AdamW { step, lr: 0.1 / step as f64, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.1, grad_scale: 1.0 };
        let training = Training { label_smoothing: 0.1, dropout: Some(step * 77), precision: self.precision };
        let labels: Vec<u32> = match model.task().objective {
            Objective::Classify(_) => sequences.iter().map(|sequence| sequence[0] % 3).collect(),
            Objective::ClassifyPairs(_) => sequences.chunks(2).map(|pair| pair[0][0] % 3).collect(),
            Objective::Predict => Vec::new(),
        };
        let micro_batch = MicroBatch::new(model, sequences, &labels, &training, sequences.len()).map_err(text)?;
        let (outline, feeds) = micro_batch.outline();
        let mut inputs = vec![Feed::new(HostData::F32(settings.factors().to_vec()), 4)];
        inputs.extend(feeds);
        let mut state: Vec<&Tensor> = model.parameters().iter().map(|(_, parameter)| dense(parameter)).collect();
        state.extend(self.moments.values().flat_map(|(m, v)| [m, v]));
        let results = match self.replayer.begin(&outline.key(), &state, inputs)? {
            Replay::Replayed(results) => results,
            Replay::Eager(work) => {
                let (factors, inputs) = work.inputs().split_first().unwrap();
                let mut accumulator = GradientAccumulator::new(model, &training).map_err(text)?;
                accumulator.accumulate(outline.filled(&mut inputs.iter()).map_err(text)?).map_err(text)?;
                let learned = accumulator.finish();
                let clip = clip(&learned.gradients.values().collect::<Vec<_>>(), Some(0.5))?;
                let mut updates = Vec::new();
                let parameters = model.parameters_mut().iter_mut();
                for ((name, parameter), (m, v)) in parameters.zip(self.moments.values_mut()) {
                    let decays = parameter.role.decays();
                    let Weight::Dense(param) = &mut parameter.value else { continue };
                    let Some(grad) = learned.gradients.get(name) else { continue };
                    updates.push(Update { param, grad, m, v, decays });
                }
                adamw_all(updates, settings, factors, &clip)?;
                let mut all: Vec<Tensor> = Vec::new();
                for (loss, hits) in &learned.values {
                    all.extend([loss.reshape([1])?, hits.reshape([1])?]);
                }
                all.push(clip);
                let numbers = Tensor::concat(&all.iter().collect::<Vec<_>>(), 0)?;
                work.finish(vec![numbers])
            }
        };
        Ok(results[0].to_f64_vec()?.into_iter().map(f64::to_bits).collect())
    }

    /// The bits of every parameter and moment.
    fn state(&self) -> Vec<u32> {
        let parameters = self.model.parameters().iter().map(|(_, parameter)| dense(parameter));
        let all = parameters.chain(self.moments.values().flat_map(|(m, v)| [m, v]));
        all.flat_map(|tensor| tensor.to_f32_vec().unwrap()).map(f32::to_bits).collect()
    }

    /// The same training in separate memory, as if another attempt resumed it.
    fn resumed(&self, device: &Device, replayer: Replayer) -> Trainer {
        let copy = |tensor: &Tensor| Tensor::from_host(device, tensor.to_host().unwrap(), tensor.shape()).unwrap();
        let mut model = self.model.clone();
        *model.parameters_mut() = self.model.parameters().map(|_, value| Ok(copy(value))).unwrap();
        let moments = self.moments.iter().map(|(name, (m, v))| (name.clone(), (copy(m), copy(v)))).collect();
        Trainer { model, moments, replayer, precision: self.precision, step: self.step }
    }
}

fn dense(parameter: &Parameter) -> &Tensor {
    match &parameter.value {
        Weight::Dense(tensor) => tensor,
        Weight::Int8 { .. } => panic!("an int8 parameter"),
    }
}

fn text(error: impl ToString) -> TensorError {
    TensorError::new("step", error.to_string())
}

const IDS: [u32; 40] = {
    let mut ids = [0; 40];
    let mut i = 0;
    while i < 40 {
        ids[i] = ((i * i * 7 + i * 3 + 1) % 11 % 5) as u32;
        i += 1;
    }
    ids
};

/// Two sequences of `length` and 3 tokens, different for each `number`.
fn batch(number: usize, length: usize) -> [&'static [u32]; 2] {
    [&IDS[number..number + length], &IDS[20 + number..23 + number]]
}

fn ten() -> Value {
    json!({"family": "ten", "dim": 4, "layers": 1, "states": 3, "chunk": 3, "ffn_multiplier": 2, "dropout": 0.2})
}

/// Trains with and without graphs on `open`'s devices; returns how many graphs were launched, and why others were not.
fn alike(
    (config, precision): (&Value, Precision),
    objective: Objective,
    open: impl Fn() -> (Device, Arc<Counts>),
) -> (usize, Option<String>) {
    let ((device, counts), (plain, _)) = (open(), open());
    let mut one = Trainer::new(config, objective, &device, Replayer::new(&device));
    let mut other = Trainer::new(config, objective, &plain, Replayer::disabled(&plain));
    (one.precision, other.precision) = (precision, precision);
    for number in 0..5 {
        let [_, launches, waits] = counts.now();
        let replays = counts.replays.load(Ordering::Relaxed);
        let found = one.step(&batch(number, 7)).unwrap();
        if counts.replays.load(Ordering::Relaxed) > replays {
            let now = counts.now();
            assert_eq!((now[1] - launches, now[2] - waits), (0, 1), "{config}: launches and waits of a repeated step");
        }
        assert_eq!(found, other.step(&batch(number, 7)).unwrap(), "{config}, step {number}");
    }
    assert_eq!(one.state(), other.state(), "{config}");
    (counts.replays.load(Ordering::Relaxed), one.replayer.remark())
}

#[test]
fn every_family_is_repeated_with_its_bits() {
    let body = || {
        let with = |mut config: Value, changes: Value| {
            changes.as_object().unwrap().iter().for_each(|(key, change)| config[key] = change.clone());
            config["dropout"] = json!(0.2);
            config
        };
        let pulse = json!({"family": "pulse", "dim": 4, "layers": 1, "states": 3, "chunk": 3, "heads": 2,
            "mixing_heads": 2, "ffn_multiplier": 2});
        let transformer = json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2, "ffn_multiplier": 2});
        for (config, objective, precision) in [
            (ten(), Objective::Predict, Precision::F32),
            (ten(), Objective::Predict, Precision::Bf16),
            (with(ten(), json!({"checkpoint": "chunk", "truncate": false})), Objective::Classify(3), Precision::F32),
            (with(pulse, json!({"local": "conv", "checkpoint": "block"})), Objective::Classify(3), Precision::F32),
            (with(transformer.clone(), json!({"positions": "rope"})), Objective::Predict, Precision::Bf16),
        ] {
            let found = alike((&config, precision), objective, cuda);
            assert_eq!(found, (3, None), "{config}");
        }
        // Each step has two products with GELU and its gradient, also in the graph.
        let (device, counts) = cuda();
        let mut trainer = Trainer::new(&ten(), Objective::Predict, &device, Replayer::new(&device));
        let gelus = || counts.gelus.load(Ordering::Relaxed);
        let asked: Vec<usize> =
            (0..3).map(|number| trainer.step(&batch(number, 7)).map(|_| gelus()).unwrap()).collect();
        assert_eq!(asked, [2, 6, 6]);
        // The selected blocks depend on computed values, which the host must read.
        let sparse = json!({"attention": "sparse", "sparsity": {"kind": "learned", "block": 3, "density": 0.7}});
        let (replays, why) = alike((&with(transformer, sparse), Precision::F32), Objective::Predict, cuda);
        assert!(replays == 0 && why.as_ref().is_some_and(|why| why.contains("reads from the device")), "{why:?}");
    };
    emulated("graph_cache::every_family_is_repeated_with_its_bits", &[], body, clean);
}

#[test]
fn steps_are_repeated_on_rocm() {
    let open = || counted(Rocm::open(0, None).unwrap());
    let body = || assert_eq!(alike((&ten(), Precision::Bf16), Objective::Predict, open), (3, None));
    emulated("graph_cache::steps_are_repeated_on_rocm", &[("ASSAY_GPU_EMULATOR_WAVE", "64")], body, clean);
}

#[test]
fn whatever_happens_between_steps_changes_no_bit() {
    let body = || {
        let ((device, counts), (plain, _)) = (cuda(), cuda());
        let replays = || counts.replays.load(Ordering::Relaxed);
        let mut one = Trainer::new(&ten(), Objective::Predict, &device, Replayer::new(&device));
        let mut other = Trainer::new(&ten(), Objective::Predict, &plain, Replayer::disabled(&plain));
        // Two shapes alternately, each a graph from its third step on.
        for (number, length) in [(0, 7), (1, 7), (2, 7), (3, 8), (4, 8), (5, 7), (6, 8)] {
            assert_eq!(one.step(&batch(number, length)), other.step(&batch(number, length)), "step {number}");
        }
        assert_eq!(replays(), 3);
        // An evaluation, a copy of all parameters, and memory with another reference.
        let seen = |trainer: &Trainer, device: &Device| {
            let inputs = Batch::new(device, &batch(9, 7)).unwrap();
            trainer.model.model().unwrap().outputs(&inputs).unwrap().to_f32_vec().unwrap()
        };
        assert_eq!(seen(&one, &device), seen(&other, &plain));
        let held: Vec<Tensor> =
            (1..200).map(|n| Tensor::full(&device, [8 * n], DType::F32, n as f64).unwrap()).collect();
        assert_eq!(one.step(&batch(7, 7)), other.step(&batch(7, 7)));
        for (n, tensor) in (1..200).zip(&held) {
            assert_eq!(tensor.to_f32_vec().unwrap(), vec![n as f32; 8 * n], "memory of others was written");
        }
        assert_eq!(replays(), 4);
        // A parameter with another reference is at another address after the next update: the graphs are no longer used.
        let model = one.model.clone();
        drop(held);
        for number in 8..12 {
            assert_eq!(one.step(&batch(number, 7)), other.step(&batch(number, 7)), "step {number}");
        }
        drop(model);
        assert_eq!(one.state(), other.state());
        // Another attempt resumes.
        let mut again = one.resumed(&device, Replayer::new(&device));
        drop(one);
        for number in 0..4 {
            assert_eq!(
                again.step(&batch(number, 8)),
                other.step(&batch(number, 8)),
                "step {number} of the next attempt"
            );
        }
        assert_eq!(again.state(), other.state());
    };
    emulated("graph_cache::whatever_happens_between_steps_changes_no_bit", &[], body, clean);
}

#[test]
fn where_memory_is_short_nothing_is_reserved() {
    let body = || {
        let ((device, counts), (plain, _)) = (cuda(), cuda());
        let mut one = Trainer::new(&ten(), Objective::Predict, &device, Replayer::new(&device));
        let mut other = Trainer::new(&ten(), Objective::Predict, &plain, Replayer::disabled(&plain));
        for number in 0..6 {
            if number == 3 {
                let taken = |_| Tensor::zeros(&device, [1 << 18], DType::F32);
                let all: Result<Vec<Tensor>, TensorError> = (0..1 << 20).map(taken).collect();
                assert_eq!(all.err().map(|error| error.class()), Some(Class::OutOfMemory));
            }
            assert_eq!(one.step(&batch(number, 7)), other.step(&batch(number, 7)), "step {number}");
        }
        assert_eq!(counts.replays.load(Ordering::Relaxed), 1);
        assert!(one.replayer.remark().is_some_and(|why| why.contains("too little memory")));
    };
    let variables = [("ASSAY_GPU_EMULATOR_MEMORY", "134217728")];
    emulated("graph_cache::where_memory_is_short_nothing_is_reserved", &variables, body, clean);
}

#[test]
fn a_fault_in_a_repeated_step_has_its_class() {
    let body = || {
        let (device, counts) = cuda();
        let mut trainer = Trainer::new(&ten(), Objective::Predict, &device, Replayer::new(&device));
        let ended = (0..100).find_map(|number| trainer.step(&batch(number % 10, 7)).err());
        assert_eq!(ended.map(|error| error.class()), Some(Class::Fault));
        assert!(counts.replays.load(Ordering::Relaxed) > 1);
    };
    let variables = [("ASSAY_GPU_EMULATOR_FAIL", "fault:3000")];
    emulated("graph_cache::a_fault_in_a_repeated_step_has_its_class", &variables, body, |_| ());
}

/// Rows of `table` with these ids, as work that may be replayed.
fn replayed_rows(replayer: &mut Replayer, table: &Tensor, ids: &[u32], below: usize) -> Result<Vec<f32>, TensorError> {
    match replayer.begin("rows", &[table], vec![Feed::ids(ids.to_vec(), ids.len(), below)])? {
        Replay::Replayed(results) => results[0].to_f32_vec(),
        Replay::Eager(work) => {
            let rows = table.rows(&work.inputs()[0])?;
            work.finish(vec![rows])[0].to_f32_vec()
        }
    }
}

#[test]
fn ids_beyond_the_bound_of_a_graph_are_refused() {
    let body = || {
        let (device, counts) = cuda();
        let table = Tensor::from_f32(&device, (0..8).map(|i| i as f32).collect(), [4, 2]).unwrap();
        let mut replayer = Replayer::new(&device);
        for ids in [[0, 1], [2, 3], [3, 0], [1, 2]] {
            let expected: Vec<f32> = ids.iter().flat_map(|&id| [2 * id, 2 * id + 1]).map(|x| x as f32).collect();
            assert_eq!(replayed_rows(&mut replayer, &table, &ids, 4).unwrap(), expected);
        }
        assert_eq!(counts.replays.load(Ordering::Relaxed), 2);
        let error = replayed_rows(&mut replayer, &table, &[1, 9], 10).unwrap_err().to_string();
        assert!(error.contains("id 9") && error.contains("4 rows"), "{error}");
    };
    emulated("graph_cache::ids_beyond_the_bound_of_a_graph_are_refused", &[], body, clean);
}

#[test]
fn what_another_thread_starts_is_no_part_of_a_graph() {
    let body = || {
        let (device, counts) = cuda();
        let (ask, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let other = device.clone();
        let thread = std::thread::spawn(move || {
            let ones = Tensor::full(&other, [1000], DType::F32, 1.0).unwrap();
            while asked.recv().is_ok() {
                tell.send(ones.scale(3.0).unwrap()).unwrap();
            }
        });
        // The other thread has enough time to start its work while the graph is captured, if it can.
        let (answers, answer) = mpsc::channel();
        *counts.during_capture.0.lock().unwrap() = Some(Box::new(move || {
            ask.send(()).unwrap();
            answers.send(told.recv_timeout(Duration::from_millis(500))).unwrap();
        }));
        let mut trainer = Trainer::new(&ten(), Objective::Predict, &device, Replayer::new(&device));
        for number in 0..3 {
            trainer.step(&batch(number, 7)).unwrap();
        }
        assert_eq!(counts.replays.load(Ordering::Relaxed), 1);
        let during: Vec<Tensor> = answer.try_iter().flatten().collect();
        for tensor in during {
            assert_eq!(tensor.to_f32_vec().unwrap(), [3.0; 1000]);
        }
        *counts.during_capture.0.lock().unwrap() = None;
        thread.join().unwrap();
    };
    emulated("graph_cache::what_another_thread_starts_is_no_part_of_a_graph", &[], body, clean);
}
