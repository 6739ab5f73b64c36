//! The list of step kinds. A new kind needs a file and a line here.

use crate::benchmark::Benchmark;
use crate::command::RunCommand;
use crate::evaluate::Evaluate;
use crate::export::Export;
use crate::plugin_step::RunPlugin;
use crate::prepare::Prepare;
use crate::quantize::Quantize;
use crate::search::Search;
use crate::step::Step;
use crate::throughput::Throughput;
#[cfg(feature = "tokenizers")]
use crate::tokenizer::TrainTokenizer;
use crate::train::Train;

/// All step kinds, in the order of a typical workflow.
#[must_use]
pub fn registry() -> Vec<Box<dyn Step>> {
    let mut kinds: Vec<Box<dyn Step>> = vec![Box::new(Prepare)];
    #[cfg(feature = "tokenizers")]
    kinds.push(Box::new(TrainTokenizer));
    let others: Vec<Box<dyn Step>> = vec![
        Box::new(Train),
        Box::new(Evaluate),
        Box::new(Quantize),
        Box::new(Export),
        Box::new(Benchmark),
        Box::new(Throughput),
        Box::new(RunCommand),
        Box::new(RunPlugin),
        Box::new(Search),
    ];
    kinds.extend(others);
    kinds
}
