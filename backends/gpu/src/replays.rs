//! Pieces of work that are repeated as graphs: the backend's [`Repeater`].
//!
//! ```text
//! run   what happens
//! 1     done as always, and noted: kernels are compiled, algorithms chosen, memory asked for
//! 2     the same; what it takes is reserved. If it asked for just what run 1 did, its calls are made a graph
//! 3..   inputs are copied to where they were, and the graph is started
//! ```
//!
//! A graph calls the same kernels on the same memory. That is what the work itself would do as long as
//!
//! - it asks for the same each time: two runs were compared, but for where in memory, and uploads by their content;
//! - what it uses beside its inputs is where it was: the addresses of the state are compared each time;
//! - it changes nothing but the state, in place: no memory that was there before may be let go of meanwhile;
//! - nobody else writes where it does: what it took is reserved, see `arena.rs`.
//!
//! Where one of these does not hold, the work is done anew, and may become another graph.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use assay_tensor::{Array, Begun, DType, Feed, HostData, Repeater, Result, TensorError};

use crate::arena::{Arena, Purpose};
use crate::driver::{Address, Driver, Graph};
use crate::error::failed;
use crate::recorder::{Noted, Recorder};
use crate::storage::{self, Buffer, UNKNOWN, host_bytes};

const NAME: &str = "repeat";
/// Kinds of work that are known at once; more are forgotten, the one not asked for longest first.
const MOST_KINDS: usize = 64;
/// Graphs at once: each holds a driver's memory.
const MOST_GRAPHS: usize = 8;
/// Runs that differ from the one before, after which a kind of work is not noted any more.
const MOST_TRIES: usize = 4;

/// What is known of the work of one trainer, say, on one device.
pub(crate) struct Replays {
    recorder: Arc<Recorder>,
    arena: Arc<Arena>,
    kinds: Vec<Kind>,
    /// The work under way: which kind, where its state lies, and what [`Arena::squeezed`] said.
    current: Option<(u64, Vec<Option<Address>>, usize)>,
    /// Counts what is asked for.
    clock: u64,
    /// What [`Arena::squeezed`] said at the beginning.
    squeezed: usize,
    remarks: VecDeque<String>,
    told: BTreeSet<String>,
}

/// Work of one key, with inputs of the same shapes.
struct Kind {
    key: String,
    /// Where its inputs lie, each time.
    inputs: Vec<Array>,
    stage: Stage,
    /// When it was asked for last.
    asked: u64,
}

enum Stage {
    /// It has not run yet, or what is known of it does not hold any more.
    New,
    /// It asked for what this digest says, the last time; so many runs differed from the one before.
    Seen(u64, usize),
    /// It is a graph.
    Ready(Captured),
    /// It cannot be one.
    Refused,
}

/// A graph, and what it holds on to.
struct Captured {
    graph: Graph,
    recorder: Arc<Recorder>,
    arena: Arc<Arena>,
    state: Vec<Option<Address>>,
    results: Vec<Array>,
    /// What was uploaded once, for all its runs.
    _kept: Vec<Array>,
}

impl Drop for Captured {
    fn drop(&mut self) {
        // Where this fails the device is gone, and the graph with it.
        let _ = self.recorder.destroy_graph(self.graph);
        self.arena.let_go();
    }
}

impl Replays {
    pub(crate) fn new(recorder: Arc<Recorder>, arena: Arc<Arena>) -> Replays {
        let squeezed = arena.squeezed();
        let (kinds, remarks, told) = (Vec::new(), VecDeque::new(), BTreeSet::new());
        Replays { recorder, arena, kinds, current: None, clock: 0, squeezed, remarks, told }
    }

    /// The kind of work of this key and these shapes, known by its time; a new one if there is none.
    fn kind(&mut self, key: &str, feeds: &[Feed]) -> Result<&mut Kind> {
        self.clock += 1;
        let key = format!("{key} of {}", feeds.iter().map(describe_feed).collect::<Vec<_>>().join(", "));
        let at = match self.kinds.iter().position(|kind| kind.key == key) {
            Some(at) => at,
            None => {
                let inputs = feeds.iter().map(|feed| self.place(feed)).collect::<Result<_>>()?;
                self.forget_oldest(MOST_KINDS - 1, |_| true);
                self.kinds.push(Kind { key, inputs, stage: Stage::New, asked: self.clock });
                self.kinds.len() - 1
            }
        };
        let kind = &mut self.kinds[at];
        kind.asked = self.clock;
        Ok(kind)
    }

    /// Memory for an input.
    fn place(&self, feed: &Feed) -> Result<Array> {
        let bound = match (&feed.data, feed.below) {
            (HostData::U32(_), Some(below)) => u64::from(below),
            _ => UNKNOWN,
        };
        let elements = feed.shape.check_size(NAME)?;
        let buffer = Buffer::new(&self.arena, NAME, elements, feed.data.dtype(), Purpose::Upload)?;
        Ok(buffer.bounded(bound).shaped(&feed.shape))
    }

    /// Forgets the oldest of the kinds that `which` chooses, until there are no more than `most`.
    fn forget_oldest(&mut self, most: usize, which: impl Fn(&Kind) -> bool) {
        loop {
            let chosen = self.kinds.iter().enumerate().filter(|(_, kind)| which(kind));
            let oldest = chosen.clone().min_by_key(|(_, kind)| kind.asked).map(|(at, _)| at);
            match oldest {
                Some(at) if chosen.count() > most => drop(self.kinds.remove(at)),
                _ => return,
            }
        }
    }

    /// Copies the inputs to where they are read.
    fn feed(&self, inputs: &[Array], feeds: &[Feed]) -> Result<()> {
        for (input, feed) in inputs.iter().zip(feeds) {
            let bytes = host_bytes(&feed.data).ok_or_else(|| no_type(feed.data.dtype()))?;
            if let Some(address) = storage::buffer(&self.arena, NAME, input)?.address() {
                self.recorder.copy_to_device(address, bytes).map_err(|error| failed(NAME, error))?;
            }
        }
        Ok(())
    }

    /// Says, once, why something is not repeated.
    fn say(&mut self, why: &str) {
        let text =
            format!("the device is asked for each operation by itself, and cannot repeat them as a graph: {why}");
        if self.told.insert(text.clone()) {
            self.remarks.push_back(text);
        }
    }

    /// Starts the graph if there is one that does what the work would do. What does not hold any more is forgotten.
    fn started(&mut self, at: usize, state: &[Option<Address>]) -> Result<Option<Vec<Array>>> {
        let Some(Kind { stage: Stage::Ready(captured), .. }) = self.kinds.get(at) else { return Ok(None) };
        if captured.state == state {
            self.recorder.launch_graph(captured.graph).map_err(|error| failed(NAME, error))?;
            return Ok(Some(captured.results.clone()));
        }
        self.kinds[at].stage = Stage::New;
        Ok(None)
    }

    /// The stage after a run that was noted, of work that was at `stage`.
    fn after(&mut self, stage: Stage, noted: Noted, state: Vec<Option<Address>>, results: &[Array]) -> Stage {
        let digest = noted.digest();
        match stage {
            Stage::Seen(before, _) if before == digest => match self.recorder.graph(&noted) {
                Ok(graph) => {
                    self.arena.hold();
                    let (recorder, arena) = (self.recorder.clone(), self.arena.clone());
                    let (results, _kept) = (results.to_vec(), noted.into_kept());
                    Stage::Ready(Captured { graph, recorder, arena, state, results, _kept })
                }
                Err(error) => {
                    self.say(&error.to_string());
                    Stage::Refused
                }
            },
            Stage::Seen(_, tries) if tries >= MOST_TRIES => {
                self.say("what is asked for differs from time to time");
                Stage::Refused
            }
            Stage::Seen(_, tries) => Stage::Seen(digest, tries + 1),
            _ => Stage::Seen(digest, 0),
        }
    }
}

impl Repeater for Replays {
    fn begin(&mut self, key: &str, state: &[&Array], feeds: Vec<Feed>) -> Result<Begun> {
        self.end(None);
        let address = |x: &&Array| Ok(storage::buffer(&self.arena, NAME, x)?.address());
        let state = state.iter().map(address).collect::<Result<Vec<_>>>()?;
        let kind = self.kind(key, &feeds)?;
        let (asked, inputs) = (kind.asked, kind.inputs.clone());
        let squeezed = self.arena.squeezed();
        if squeezed != self.squeezed {
            self.kinds.iter_mut().for_each(|kind| kind.stage = Stage::Refused);
            self.say("there is too little memory to reserve any");
        }
        self.feed(&inputs, &feeds)?;
        let at = self.kinds.iter().position(|kind| kind.asked == asked).unwrap_or(self.kinds.len());
        if let Some(results) = self.started(at, &state)? {
            return Ok(Begun::Repeated(results));
        }
        let notes = match self.kinds.get(at).map(|kind| &kind.stage) {
            Some(Stage::New) => self.arena.begin_turn(false),
            Some(Stage::Seen(..)) => self.arena.begin_turn(true),
            _ => false,
        };
        if notes {
            self.current = Some((asked, state, squeezed));
            self.recorder.start();
        }
        Ok(Begun::Anew(inputs))
    }

    fn end(&mut self, results: Option<&[Array]>) {
        let Some((asked, state, squeezed)) = self.current.take() else { return };
        let noted = self.recorder.stop();
        let at = self.kinds.iter().position(|kind| kind.asked == asked);
        if let (Some(at), Some(noted), Some(results)) = (at, noted, results) {
            let stage = std::mem::replace(&mut self.kinds[at].stage, Stage::New);
            let refusal = noted.refusal().map(str::to_owned);
            self.kinds[at].stage = match refusal {
                Some(why) => {
                    self.say(&why);
                    Stage::Refused
                }
                None if self.arena.squeezed() != squeezed => Stage::New,
                None => self.after(stage, noted, state, results),
            };
        }
        if self.arena.end_turn()
            && let Some(kind) = at.and_then(|at| self.kinds.get_mut(at))
        {
            kind.stage = Stage::Refused;
            self.say("it lets go of memory that it had before");
        }
        let graph = |kind: &Kind| matches!(kind.stage, Stage::Ready(_));
        self.forget_oldest(MOST_GRAPHS, graph);
    }

    fn remark(&mut self) -> Option<String> {
        self.remarks.pop_front()
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// What an input is known by. The bound of ids belongs to it: it was checked against the rows that they name when the work was
/// captured, so that larger ids need a graph of their own.
fn describe_feed(feed: &Feed) -> String {
    let below = feed.below.map_or(String::new(), |below| format!(" below {below}"));
    format!("{} {}{below}", feed.data.dtype(), feed.shape)
}

fn no_type(dtype: DType) -> TensorError {
    TensorError::new(NAME, format!("this backend holds no {dtype}"))
}
