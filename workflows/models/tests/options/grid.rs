//! The grid of all options: every family with its axes, and the combinations that the tests use.

use assay_models::ModelConfig;
use serde_json::{Value, json};

/// A family: the common part of all its configs, and their axes.
pub struct Family {
    base: Value,
    axes: Vec<(&'static str, Vec<Value>)>,
}

/// Every family with all its options, tiny. A new family or option needs a line here.
///
/// The chunk is 3, so that the sequences of the tests have whole chunks and an incomplete one.
fn families() -> Vec<Family> {
    vec![
        family(
            json!({"family": "ten", "dim": 4, "layers": 2, "states": 3, "chunk": 3, "ffn_multiplier": 2,
                   "resonance_strength": 0.5}),
            &[
                ("init", json!(["ring", "seed"])),
                ("input", json!(["real", "complex"])),
                ("readout", json!(["complex", "real"])),
                ("norm", json!(["pre", "post"])),
                ("ffn", json!(["gelu", "swiglu"])),
                ("positions", json!(["none", "learned", "sinusoidal"])),
                ("cells", json!([1, 2])),
                ("skip", json!([true, false])),
                ("truncate", json!([true, false])),
                ("resonance", json!(["off", "readout", "recurrent", "chunk_carry"])),
                ("selective", json!([false, true])),
                ("scales", json!([[1], [1, 2, 4]])),
                ("pool", json!(["mean", "last", "max"])),
                ("tied", json!([false, true])),
            ],
        ),
        family(
            json!({"family": "pulse", "dim": 4, "layers": 2, "states": 3, "chunk": 3, "heads": 2, "mixing_heads": 2,
                   "ffn_multiplier": 2}),
            &[
                ("routing", json!(["dense", "top_k"])),
                ("top_k", json!([2, 1])),
                ("gate", json!(["gru", "lstm"])),
                ("mixing", json!(["on", "off"])),
                ("local", json!(["attention", "conv"])),
                ("slot_width", json!([null, 6])),
                ("attention_every", json!([null, 2])),
                ("memory", json!([null, {"slots": 2, "width": 3}])),
                ("positions", json!(["rope", "learned", "none"])),
                ("ffn", json!(["gelu", "swiglu"])),
                ("pool", json!(["mean", "last", "max"])),
                ("tied", json!([false, true])),
            ],
        ),
        family(
            json!({"family": "transformer", "dim": 8, "layers": 2, "ffn_multiplier": 2, "chunk": 3, "heads": 2,
                   "attention": "sparse", "sparsity": {"kind": "block", "block": 2}}),
            &[
                (
                    "sparsity",
                    json!([
                        {"kind": "block", "block": 2},
                        {"kind": "threshold", "block": 2, "density": 0.6},
                        {"kind": "learned", "block": 3, "density": 0.7},
                    ]),
                ),
                ("positions", json!(["learned", "rope"])),
                ("pool", json!(["mean", "last"])),
            ],
        ),
        family(
            json!({"family": "transformer", "dim": 8, "layers": 2, "ffn_multiplier": 2, "chunk": 3}),
            &[
                ("attention", json!(["full", "flash"])),
                ("positions", json!(["learned", "rope"])),
                ("heads", json!([1, 2])),
                ("pool", json!(["mean", "last", "max"])),
                ("tied", json!([false, true])),
            ],
        ),
    ]
}

fn family(base: Value, axes: &[(&'static str, Value)]) -> Family {
    let list = |(key, values): &(&'static str, Value)| (*key, values.as_array().unwrap().clone());
    Family { base, axes: axes.iter().map(list).collect() }
}

/// Configs in which every value of every option is combined with every value of every other option of its family, if
/// the two are compatible; each with a name for messages.
pub fn grid() -> Vec<(String, ModelConfig)> {
    families().iter().flat_map(Family::pairs).map(|value| (value.to_string(), read(&value).unwrap())).collect()
}

/// Configs outside of the grid, for tests that learn from whole sequences: PULSE with folded projections, which needs chunks of
/// more tokens than slots, and transformers that are not causal.
pub fn whole() -> Vec<(String, ModelConfig)> {
    let mut all = Vec::new();
    for change in [
        json!({}),
        json!({"gate": "lstm", "routing": "top_k", "top_k": 1}),
        json!({"mixing": "off", "local": "conv", "memory": {"slots": 2, "width": 3}}),
    ] {
        let mut config = json!({"family": "pulse", "dim": 4, "layers": 2, "states": 2, "slot_width": 6, "chunk": 7, "heads": 2,
            "mixing_heads": 2, "ffn_multiplier": 2});
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        all.push(config);
    }
    for attention in ["full", "flash"] {
        for pool in ["mean", "last", "max"] {
            all.push(json!({"family": "transformer", "dim": 8, "layers": 2, "heads": 2, "ffn_multiplier": 2,
                "attention": attention, "causal": false, "positions": "rope", "pool": pool}));
        }
    }
    all.iter().map(|value| (value.to_string(), read(value).unwrap())).collect()
}

#[test]
fn some_of_what_is_read_whole_folds() {
    let folds = |(_, config): &(String, ModelConfig)| match config {
        ModelConfig::Pulse(config) => assay_models::pulse::folds(config, 7),
        _ => false,
    };
    assert_eq!(whole().iter().filter(|config| folds(config)).count(), 3);
}

/// For each family its base config, and the base with each single option: for slow tests.
pub fn few() -> Vec<(String, ModelConfig)> {
    let singles = |family: &Family| {
        let base = family.base.clone();
        let changed = family.axes.iter().flat_map(|(key, values)| values[1..].iter().map(move |value| (*key, value)));
        let mut all: Vec<Value> = changed.map(|(key, value)| put(&base, key, value)).collect();
        all.push(base);
        all
    };
    let all = families().iter().flat_map(singles).collect::<Vec<_>>();
    all.iter().map(|value| (value.to_string(), read(value).unwrap())).collect()
}

/// A plain config.
pub fn base() -> ModelConfig {
    read(&families()[0].base).unwrap()
}

/// Whether the result depends on the positions of the config's chunks.
pub fn depends_on_chunk(config: &ModelConfig) -> bool {
    match config {
        ModelConfig::Ten(ten) => ten.resonance == assay_models::Resonance::ChunkCarry,
        ModelConfig::Pulse(_) => true,
        ModelConfig::Transformer(_) => false,
    }
}

fn read(value: &Value) -> Option<ModelConfig> {
    let config: ModelConfig = serde_json::from_value(value.clone()).unwrap();
    config.validate().is_empty().then_some(config)
}

fn put(base: &Value, key: &str, value: &Value) -> Value {
    let mut config = base.clone();
    config[key] = value.clone();
    config
}

/// Two axes with a value of each.
type Pair = ((usize, usize), (usize, usize));

impl Family {
    /// Greedily, starting with missing pairs, until none is missing.
    fn pairs(&self) -> Vec<Value> {
        let (mut missing, mut configs) = (self.possible(), Vec::new());
        while let Some(&first) = missing.first() {
            let chosen = self.complete(first, &missing);
            missing.retain(|(a, b)| !(chosen[a.0] == a.1 && chosen[b.0] == b.1));
            let config =
                chosen.iter().enumerate().fold(self.base.clone(), |c, (axis, value)| self.set(&c, axis, *value));
            configs.push(config);
        }
        configs
    }

    fn set(&self, config: &Value, axis: usize, value: usize) -> Value {
        let (key, values) = &self.axes[axis];
        put(config, key, &values[value])
    }

    /// All pairs that a config can have.
    fn possible(&self) -> Vec<Pair> {
        let values = |axis: usize| (0..self.axes[axis].1.len()).map(move |value| (axis, value));
        let mut pairs = Vec::new();
        for second in 1..self.axes.len() {
            for first in 0..second {
                pairs.extend(values(first).flat_map(|a| values(second).map(move |b| (a, b))));
            }
        }
        pairs.retain(|(a, b)| read(&self.set(&self.set(&self.base, a.0, a.1), b.0, b.1)).is_some());
        pairs
    }

    /// A value for every axis: those of `first`, then the values that add the most missing pairs.
    fn complete(&self, first: Pair, missing: &[Pair]) -> Vec<usize> {
        let mut chosen: Vec<Option<usize>> = vec![None; self.axes.len()];
        let mut config = self.base.clone();
        for (axis, value) in [first.0, first.1] {
            chosen[axis] = Some(value);
            config = self.set(&config, axis, value);
        }
        for axis in 0..self.axes.len() {
            if chosen[axis].is_some() {
                continue;
            }
            let gain = |value: usize| {
                let with = |(a, b): &&Pair| match ((a.0 == axis, chosen[a.0]), (b.0 == axis, chosen[b.0])) {
                    ((true, _), (_, other)) => a.1 == value && other == Some(b.1),
                    ((_, other), (true, _)) => b.1 == value && other == Some(a.1),
                    _ => false,
                };
                missing.iter().filter(with).count()
            };
            let able = |value: &usize| read(&self.set(&config, axis, *value)).is_some();
            // The last of the best, so that later values of a list are not neglected if nothing is gained.
            let best = (0..self.axes[axis].1.len()).filter(able).max_by_key(|value| gain(*value)).unwrap();
            chosen[axis] = Some(best);
            config = self.set(&config, axis, best);
        }
        chosen.into_iter().map(Option::unwrap).collect()
    }
}

#[test]
fn the_grid_has_every_pair_of_options() {
    for family in families() {
        let configs = family.pairs();
        for (a, b) in family.possible() {
            let has = |config: &Value, (axis, value): (usize, usize)| {
                config[family.axes[axis].0] == family.axes[axis].1[value]
            };
            assert!(configs.iter().any(|config| has(config, a) && has(config, b)), "{a:?} with {b:?}");
        }
        let most = family.axes.iter().map(|(_, values)| values.len()).product::<usize>();
        assert!(configs.len() <= most.min(60), "{} configs of {}", configs.len(), family.base);
    }
}
