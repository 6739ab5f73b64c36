//! `assay-executor-chaos plugin BEHAVIOUR`: a plugin's process without a sandbox, which misbehaves in one way.
//!
//! `honest` makes sequences from seed, split and number, counts correct predictions, and increases the length of sequences step by step.

use std::collections::BTreeMap;
use std::process::ExitCode;

use assay_protocol::{
    Packet, PluginAbout, PluginAnswer, PluginCall, PluginFacts, PluginReply, PluginRequest, PluginStage, PluginValue,
    f32_of_list, list_of_u32, read_packet, u32_of_list, write_packet,
};

use crate::{behaviours, print_text};

/// The state of an instance: predictions and correct ones.
#[derive(Default, Clone, Copy)]
struct Sums {
    count: u64,
    right: u64,
}

/// Answers requests until the input ends.
pub(crate) fn serve_plugin(behaviour: &str) -> ExitCode {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
    let mut calls = 0;
    while let Ok(Some(request)) = read_packet::<PluginRequest>(&mut input) {
        let is_load = matches!(request.message.call, PluginCall::Load { .. });
        match (behaviour, is_load) {
            ("garbage", _) => {
                drop(output);
                print_text("hello, I am no plugin\n");
                return ExitCode::SUCCESS;
            }
            ("exit", _) => return ExitCode::from(3),
            ("slow_compiler", true) | ("loop", false) => behaviours::loop_for_ever(),
            ("exhaust", false) => {
                eprintln!("memory allocation of 99 bytes failed");
                std::process::abort();
            }
            _ => {}
        }
        calls += 1;
        let (answer, lists) = match behaviour {
            "misunderstand" if !is_load => (PluginAnswer::Sequences, Vec::new()),
            _ => answer_call(behaviour, calls, &mut sums, request),
        };
        let log = vec![("info".to_owned(), format!("call {calls}"))];
        let reply = Packet { message: PluginReply { answer, fuel: 7, log }, lists };
        if write_packet(&mut output, &reply).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn answer_call(
    behaviour: &str,
    calls: u64,
    sums: &mut BTreeMap<u32, Sums>,
    request: Packet<PluginRequest>,
) -> (PluginAnswer, Vec<Vec<u8>>) {
    let Packet { message: PluginRequest { instance, call }, lists } = request;
    let own = sums.entry(instance).or_default();
    match call {
        PluginCall::Load { .. } => (PluginAnswer::Loaded(about()), Vec::new()),
        PluginCall::OpenDataset { .. } => {
            let vocabulary = vec!["a".into(), "b".into()];
            (PluginAnswer::Facts(PluginFacts { vocabulary, classes: 2, max_length: 3 }), Vec::new())
        }
        PluginCall::Batch { seed, split, first, count } => {
            let disturbance = match behaviour {
                "count_calls" => calls,
                "depend_on_batch" => first,
                _ => 0,
            };
            (PluginAnswer::Sequences, make_sequences(seed + split as u64 + disturbance, first, count))
        }
        PluginCall::OpenMetric { .. } => {
            *own = Sums::default();
            (PluginAnswer::Done, Vec::new())
        }
        PluginCall::Add { classes } => {
            add_predictions(own, &lists, classes as usize);
            (PluginAnswer::Done, Vec::new())
        }
        PluginCall::Save => (PluginAnswer::State, vec![[own.count.to_le_bytes(), own.right.to_le_bytes()].concat()]),
        PluginCall::Merge => {
            let (numbers, _) = lists[0].as_chunks::<8>();
            own.count += u64::from_le_bytes(numbers[0]);
            own.right += if behaviour == "forget" { 0 } else { u64::from_le_bytes(numbers[1]) };
            (PluginAnswer::Done, Vec::new())
        }
        PluginCall::Values => {
            let values = vec![PluginValue::new("accuracy", own.right as f64 / own.count as f64)];
            (PluginAnswer::Values { values }, Vec::new())
        }
        PluginCall::OpenCurriculum { .. } => (PluginAnswer::State, vec![vec![1]]),
        PluginCall::Next { step, .. } => {
            let length = if behaviour == "count_calls" { calls as u32 } else { u32::from(lists[0][0]) };
            let stage = PluginStage { until_step: step + 10, max_length: length, note: String::new() };
            (PluginAnswer::Stage(stage), vec![vec![lists[0][0] + 1]])
        }
        PluginCall::RunStep { replicate, .. } => {
            let result = (u64::from(replicate) + if behaviour == "count_calls" { calls } else { 0 }).to_string();
            (PluginAnswer::Result { result, written: Vec::new() }, Vec::new())
        }
        PluginCall::OpenSearcher { seed, .. } => (PluginAnswer::State, vec![seed.to_le_bytes().to_vec()]),
        PluginCall::Propose { count, .. } => {
            let first = if behaviour == "count_calls" { calls } else { u64::from(lists[0][0]) };
            let params = (0..u64::from(count)).map(|index| format!("{{\"x\": {}}}", first + index)).collect();
            let next = (first + 1).to_le_bytes().to_vec();
            (PluginAnswer::Proposal { params, finished: first > 2 }, vec![next])
        }
    }
}

fn about() -> PluginAbout {
    PluginAbout {
        name: "chaos".into(),
        version: "0.0.0".into(),
        description: "Dice.".into(),
        config_schema: String::new(),
        interfaces: ["dataset", "metric", "curriculum", "step", "searcher"].map(String::from).into(),
        hash: "0".repeat(64),
    }
}

/// Sequences of one to three tokens, each of which depends only on the seed and its number.
fn make_sequences(seed: u64, first: u64, count: u32) -> Vec<Vec<u8>> {
    let (mut tokens, mut offsets, mut labels) = (Vec::new(), vec![0], Vec::new());
    for index in first..first + u64::from(count) {
        let bits = (seed + 1).wrapping_mul(index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        tokens.extend((0..=bits % 3).map(|place| (bits >> (4 + place)) as u32 & 1));
        offsets.push(tokens.len() as u32);
        labels.push((bits >> 8) as u32 & 1);
    }
    [tokens, offsets, labels].iter().map(|list| list_of_u32(list)).collect()
}

fn add_predictions(sums: &mut Sums, lists: &[Vec<u8>], classes: usize) {
    let targets = u32_of_list(&lists[2]).unwrap_or_default();
    let scores = f32_of_list(&lists[3]).unwrap_or_default();
    for (target, scores) in targets.iter().zip(scores.chunks(classes)) {
        sums.count += 1;
        sums.right += u64::from(scores.iter().all(|score| *score <= scores[*target as usize]));
    }
}
