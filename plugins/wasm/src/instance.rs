//! One instance of a plugin, and the calls that it answers.

use assay_protocol::{
    PluginFacts, PluginLimits, PluginObservation, PluginSplit, PluginStage, PluginTrial, PluginValue,
};
use wasmtime::component::{ComponentNamedList, Instance as Linked, Lift, Linker, Lower, TypedFunc};
use wasmtime::{Engine, Store};

use crate::answers::{
    check_facts, check_proposal, check_result, check_sequences, check_stage, check_state, check_values,
};
use crate::artifacts::StepPorts;
use crate::component::Plugin;
use crate::engine::EPOCH;
use crate::failure::{CallLimits, Cause, explain};
use crate::interface::{
    About, Facts, MetricBatch, PACKAGE, Problem, Proposal, Seen, Sequences, Split, Stage, Trial, Value,
};
use crate::store::InstanceState;

/// An instance, with separate limits of fuel, memory and time.
pub(crate) struct Instance {
    store: Store<InstanceState>,
    linked: Linked,
    /// Set by the first call that was stopped. wasmtime refuses later calls to such an instance with a message that does not explain why.
    dead: bool,
    /// The facts of the open dataset.
    facts: Option<PluginFacts>,
    /// The fuel used by the last call.
    pub fuel: u64,
}

/// The limits of a call that makes or scores `samples` sequences.
fn call_limits(limits: &PluginLimits, samples: u64) -> CallLimits {
    let fuel = limits.fuel_per_call.saturating_add(limits.fuel_per_sample.saturating_mul(samples));
    CallLimits { fuel, seconds: limits.call_seconds }
}

/// A time limit in epochs.
fn epochs(seconds: u64) -> u64 {
    seconds.saturating_mul(1000) / EPOCH.as_millis() as u64 + 1
}

impl Instance {
    /// Instantiates a component, which runs its start function. An error contains the log so far.
    pub fn start(
        engine: &Engine,
        linker: &Linker<InstanceState>,
        plugin: &Plugin,
        limits: &PluginLimits,
    ) -> Result<Self, (Cause, Vec<(String, String)>)> {
        let mut store = Store::new(engine, InstanceState::new(limits.clone()));
        store.limiter(|state| state);
        store.set_hostcall_fuel(usize::try_from(limits.transfer).unwrap_or(usize::MAX));
        let call = call_limits(limits, 0);
        store.set_epoch_deadline(epochs(call.seconds));
        let linked = store.set_fuel(call.fuel).and_then(|()| linker.instantiate(&mut store, &plugin.component));
        match linked {
            Ok(linked) => Ok(Instance { store, linked, dead: false, facts: None, fuel: 0 }),
            Err(error) => Err((explain(&error, limits, call, "cannot be started"), store.data_mut().drain_log())),
        }
    }

    /// The log lines since the last call.
    pub fn drain_log(&mut self) -> Vec<(String, String)> {
        self.store.data_mut().drain_log()
    }

    fn limits(&self) -> PluginLimits {
        self.store.data().limits.clone()
    }

    fn call<P, R>(&mut self, interface: &str, function: &str, params: P, samples: u64) -> Result<R, Cause>
    where
        P: ComponentNamedList + Lower,
        R: Lift + 'static,
        (R,): ComponentNamedList + Lift,
    {
        let limits = call_limits(&self.limits(), samples);
        self.call_within(limits, interface, function, params)
    }

    fn call_within<P, R>(&mut self, call: CallLimits, interface: &str, function: &str, params: P) -> Result<R, Cause>
    where
        P: ComponentNamedList + Lower,
        R: Lift + 'static,
        (R,): ComponentNamedList + Lift,
    {
        if self.dead {
            return Err(Cause::new("cannot be called: an earlier call to this instance was cut off"));
        }
        let typed: TypedFunc<P, (R,)> = self.find_function(interface, function)?;
        let limits = self.limits();
        self.store.set_epoch_deadline(epochs(call.seconds));
        let answer = self.store.set_fuel(call.fuel).and_then(|()| typed.call(&mut self.store, params));
        self.fuel = call.fuel - self.store.get_fuel().unwrap_or(0).min(call.fuel);
        answer.map(|(answer,)| answer).map_err(|error| {
            self.dead = true;
            explain(&error, &limits, call, "gave an invalid answer")
        })
    }

    fn find_function<P, R>(&mut self, interface: &str, function: &str) -> Result<TypedFunc<P, R>, Cause>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let name = format!("{PACKAGE}/{interface}@0.1.0");
        let missing = || {
            Cause::new(format!("does not exist: the plugin does not export it from `{name}`"))
                .with_hint("`assay plugin check` shows what the plugin exports")
        };
        let instance = self.linked.get_export_index(&mut self.store, None, &name).ok_or_else(missing)?;
        let index = self.linked.get_export_index(&mut self.store, Some(&instance), function).ok_or_else(missing)?;
        self.linked.get_typed_func(&mut self.store, index).map_err(|error| {
            Cause::new(format!("has a different signature than in `{name}`: {error:#}"))
                .with_hint("build it with the interface that `assay plugin new` writes")
        })
    }

    /// Calls a function that returns a `problem` if it fails.
    fn ask<P, R>(&mut self, interface: &str, function: &str, params: P, samples: u64) -> Result<R, Cause>
    where
        P: ComponentNamedList + Lower,
        R: Lift + 'static,
        (Result<R, Problem>,): ComponentNamedList + Lift,
    {
        Ok(self.call::<P, Result<R, Problem>>(interface, function, params, samples)??)
    }

    pub fn describe(&mut self) -> Result<About, Cause> {
        self.call("plugin", "describe", (), 0)
    }

    pub fn open_dataset(&mut self, config: &str) -> Result<PluginFacts, Cause> {
        let Facts { vocabulary, classes, max_length } = self.ask("dataset", "open", (config.to_owned(),), 0)?;
        let facts = PluginFacts { vocabulary, classes, max_length };
        check_facts(&facts)?;
        self.facts = Some(facts.clone());
        Ok(facts)
    }

    pub fn batch(&mut self, seed: u64, split: PluginSplit, first: u64, count: u32) -> Result<Sequences, Cause> {
        let Some(facts) = self.facts.clone() else {
            return Err(Cause::new("cannot be called before `dataset.open`"));
        };
        let split = match split {
            PluginSplit::Train => Split::Train,
            PluginSplit::Valid => Split::Valid,
            PluginSplit::Test => Split::Test,
        };
        let sequences = self.ask("dataset", "batch", (seed, split, first, count), u64::from(count))?;
        check_sequences(&sequences, &facts, count)?;
        Ok(sequences)
    }

    pub fn open_metric(&mut self, config: &str) -> Result<(), Cause> {
        self.ask("metric", "open", (config.to_owned(),), 0)
    }

    pub fn add(&mut self, batch: MetricBatch) -> Result<(), Cause> {
        let samples = batch.targets.len() as u64;
        self.ask("metric", "add", (batch,), samples)
    }

    pub fn save(&mut self) -> Result<Vec<u8>, Cause> {
        let state: Vec<u8> = self.call("metric", "save", (), 0)?;
        check_state(&state, &self.limits())?;
        Ok(state)
    }

    pub fn merge(&mut self, saved: Vec<u8>) -> Result<(), Cause> {
        self.ask("metric", "merge", (saved,), 0)
    }

    pub fn values(&mut self) -> Result<Vec<PluginValue>, Cause> {
        let values: Vec<Value> = self.ask("metric", "values", (), 0)?;
        check_values(&values)?;
        Ok(values.into_iter().map(|Value { name, value }| PluginValue::new(name, value)).collect())
    }

    pub fn open_curriculum(&mut self, config: &str, seed: u64, lengths: Vec<u32>) -> Result<Vec<u8>, Cause> {
        let samples = lengths.len() as u64;
        let state: Vec<u8> = self.ask("curriculum", "open", (config.to_owned(), seed, lengths), samples)?;
        check_state(&state, &self.limits())?;
        Ok(state)
    }

    pub fn next(
        &mut self,
        state: Vec<u8>,
        step: u64,
        seen: &[PluginObservation],
    ) -> Result<(PluginStage, Vec<u8>), Cause> {
        let value = |value: &PluginValue| Value { name: value.name.clone(), value: value.value() };
        let seen: Vec<Seen> =
            seen.iter().map(|seen| Seen { step: seen.step, values: seen.values.iter().map(value).collect() }).collect();
        let samples = seen.len() as u64;
        let (stage, state): (Stage, Vec<u8>) = self.ask("curriculum", "next", (state, step, seen), samples)?;
        check_stage(&stage, step)?;
        check_state(&state, &self.limits())?;
        let Stage { until_step, max_length, note } = stage;
        Ok((PluginStage { until_step, max_length, note }, state))
    }

    /// Runs a step. Returns its result as JSON, and the outputs that it wrote.
    pub fn run_step(&mut self, config: &str, replicate: u32, ports: StepPorts) -> Result<(String, Vec<String>), Cause> {
        let limits = self.limits();
        let call = CallLimits { fuel: limits.fuel_per_step, seconds: limits.step_seconds };
        self.store.data_mut().ports = Some(ports);
        let answer =
            self.call_within::<_, Result<String, Problem>>(call, "step", "run", (config.to_owned(), replicate));
        let ports = self.store.data_mut().ports.take();
        let result = answer??;
        check_result(&result)?;
        Ok((result, ports.map(|ports| ports.written()).unwrap_or_default()))
    }

    pub fn open_searcher(&mut self, config: &str, space: &str, seed: u64) -> Result<Vec<u8>, Cause> {
        let state: Vec<u8> = self.ask("searcher", "open", (config.to_owned(), space.to_owned(), seed), 0)?;
        check_state(&state, &self.limits())?;
        Ok(state)
    }

    pub fn propose(&mut self, state: Vec<u8>, results: Vec<PluginTrial>, count: u32) -> Result<Proposal, Cause> {
        let trial = |trial: PluginTrial| Trial { params: trial.params, value: trial.bits.map(f64::from_bits) };
        let results: Vec<Trial> = results.into_iter().map(trial).collect();
        let samples = results.len() as u64 + u64::from(count);
        let proposal: Proposal = self.ask("searcher", "propose", (state, results, count), samples)?;
        check_proposal(&proposal, count)?;
        check_state(&proposal.state, &self.limits())?;
        Ok(proposal)
    }
}
