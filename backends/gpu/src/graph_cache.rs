//! The cache of captured graphs: the backend's [`ReplayBackend`].
//!
//! ```text
//! run   what happens
//! 1     the operations run one by one and are recorded: kernels are compiled, algorithms chosen, memory allocated
//! 2     the same; the memory that they take is reserved. If the calls equal those of run 1, they are captured as a graph
//! 3..   the inputs are copied to where they were, and the graph is launched
//! ```
//!
//! A graph calls the same kernels on the same memory. It does what the operations themselves would do as long as
//!
//! - the calls are the same each time: two runs were compared, except for addresses, and uploads by their content;
//! - everything that they use beside the inputs is at the same address: the addresses of the state are compared each time;
//! - they change nothing but the state, in place: no memory allocated before may be freed meanwhile;
//! - nobody else writes to their memory: it is reserved, see `arena.rs`.
//!
//! Where one of these does not hold, the operations run one by one, and may be captured again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use assay_tensor::{Array, BackendReplay, DType, Feed, HostData, ReplayBackend, Result, TensorError};

use crate::arena::{Arena, Purpose};
use crate::driver::{Address, Driver, Graph};
use crate::error::to_tensor_error;
use crate::recorder::{Capture, Recorder};
use crate::storage::{self, Buffer, UNKNOWN, host_bytes};

const NAME: &str = "repeat";
/// Entries of the cache; beyond them the least recently used is evicted.
const MAX_ENTRIES: usize = 64;
/// Graphs of the cache: each holds memory of the driver.
const MAX_GRAPHS: usize = 8;
/// Runs that differ from the one before, after which the calls of an entry are not recorded any more.
const MAX_MISMATCHES: usize = 4;

/// The graphs of one user, such as a trainer, on one device.
pub(crate) struct GraphCache {
    recorder: Arc<Recorder>,
    arena: Arc<Arena>,
    entries: Vec<CacheEntry>,
    /// The run that is being recorded.
    current: Option<Recording>,
    /// Counts the runs.
    clock: u64,
    /// [`Arena::evictions`] when the cache was made.
    evictions: usize,
    remarks: VecDeque<String>,
    reported: BTreeSet<String>,
}

/// A run that is being recorded.
struct Recording {
    /// [`CacheEntry::last_used`] of its entry.
    entry: u64,
    /// The addresses of its state.
    addresses: Vec<Option<Address>>,
    /// [`Arena::evictions`] before it.
    evictions: usize,
}

/// The work of one key with inputs of one list of shapes.
struct CacheEntry {
    key: String,
    /// The memory of its inputs, the same for each run.
    inputs: Vec<Array>,
    state: EntryState,
    /// When it was last used, by the cache's clock.
    last_used: u64,
}

enum EntryState {
    /// It has not run yet, or its graph is out of date.
    New,
    /// The digest of the last run's calls, and how many runs differed from the one before.
    Recorded(u64, usize),
    /// It is captured.
    Ready(CapturedGraph),
    /// It cannot be captured.
    Rejected,
}

/// A graph and all that it uses.
struct CapturedGraph {
    graph: Graph,
    recorder: Arc<Recorder>,
    arena: Arc<Arena>,
    /// The addresses of its state.
    addresses: Vec<Option<Address>>,
    results: Vec<Array>,
    /// What was uploaded while it was recorded, and is read in each run.
    _uploads: Vec<Array>,
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // This fails only if the device is lost, and the graph with it.
        let _ = self.recorder.destroy_graph(self.graph);
        self.arena.remove_graph();
    }
}

impl GraphCache {
    pub(crate) fn new(recorder: Arc<Recorder>, arena: Arc<Arena>) -> GraphCache {
        let evictions = arena.evictions();
        let (entries, remarks, reported) = (Vec::new(), VecDeque::new(), BTreeSet::new());
        GraphCache { recorder, arena, entries, current: None, clock: 0, evictions, remarks, reported }
    }

    /// The entry of this key and these shapes, made if there is none.
    fn find_entry(&mut self, key: &str, feeds: &[Feed]) -> Result<&mut CacheEntry> {
        self.clock += 1;
        let key = format!("{key} of {}", feeds.iter().map(describe_feed).collect::<Vec<_>>().join(", "));
        let at = match self.entries.iter().position(|entry| entry.key == key) {
            Some(at) => at,
            None => {
                let inputs = feeds.iter().map(|feed| self.allocate_input(feed)).collect::<Result<_>>()?;
                self.evict_oldest(MAX_ENTRIES - 1, |_| true);
                self.entries.push(CacheEntry { key, inputs, state: EntryState::New, last_used: self.clock });
                self.entries.len() - 1
            }
        };
        let entry = &mut self.entries[at];
        entry.last_used = self.clock;
        Ok(entry)
    }

    /// Memory for an input.
    fn allocate_input(&self, feed: &Feed) -> Result<Array> {
        let bound = match (&feed.data, feed.below) {
            (HostData::U32(_), Some(below)) => u64::from(below),
            _ => UNKNOWN,
        };
        let elements = feed.shape.check_size(NAME)?;
        let buffer = Buffer::new(&self.arena, NAME, elements, feed.data.dtype(), Purpose::Upload)?;
        Ok(buffer.with_id_bound(bound).into_array(&feed.shape))
    }

    /// Evicts the least recently used of the entries that `which` chooses, until there are no more than `most`.
    fn evict_oldest(&mut self, most: usize, which: impl Fn(&CacheEntry) -> bool) {
        loop {
            let chosen = self.entries.iter().enumerate().filter(|(_, entry)| which(entry));
            let oldest = chosen.clone().min_by_key(|(_, entry)| entry.last_used).map(|(at, _)| at);
            match oldest {
                Some(at) if chosen.count() > most => drop(self.entries.remove(at)),
                _ => return,
            }
        }
    }

    /// Copies the inputs to the memory that the operations read.
    fn upload_inputs(&self, inputs: &[Array], feeds: &[Feed]) -> Result<()> {
        for (input, feed) in inputs.iter().zip(feeds) {
            let bytes = host_bytes(&feed.data).ok_or_else(|| no_type(feed.data.dtype()))?;
            if let Some(address) = storage::buffer_of(&self.arena, NAME, input)?.address() {
                self.recorder.copy_to_device(address, bytes).map_err(|error| to_tensor_error(NAME, error))?;
            }
        }
        Ok(())
    }

    /// Reports a reason why graphs are not used, once.
    fn report_once(&mut self, why: &str) {
        let text = format!("this work is not captured as a graph, its kernels are launched one by one: {why}");
        if self.reported.insert(text.clone()) {
            self.remarks.push_back(text);
        }
    }

    /// Launches the entry's graph, if there is one. A graph whose state has moved is dropped.
    fn replay_entry(&mut self, at: usize, addresses: &[Option<Address>]) -> Result<Option<Vec<Array>>> {
        let Some(CacheEntry { state: EntryState::Ready(captured), .. }) = self.entries.get(at) else { return Ok(None) };
        if captured.addresses == addresses {
            self.recorder.launch_graph(captured.graph).map_err(|error| to_tensor_error(NAME, error))?;
            return Ok(Some(captured.results.clone()));
        }
        self.entries[at].state = EntryState::New;
        Ok(None)
    }

    /// The state of an entry after a recorded run.
    fn next_state(
        &mut self,
        state: EntryState,
        capture: Capture,
        addresses: Vec<Option<Address>>,
        results: &[Array],
    ) -> EntryState {
        let digest = capture.digest();
        match state {
            EntryState::Recorded(before, _) if before == digest => match self.recorder.capture_graph(&capture) {
                Ok(graph) => {
                    self.arena.add_graph();
                    let (recorder, arena) = (self.recorder.clone(), self.arena.clone());
                    let (results, _uploads) = (results.to_vec(), capture.into_uploads());
                    EntryState::Ready(CapturedGraph { graph, recorder, arena, addresses, results, _uploads })
                }
                Err(error) => {
                    self.report_once(&error.to_string());
                    EntryState::Rejected
                }
            },
            EntryState::Recorded(_, tries) if tries >= MAX_MISMATCHES => {
                self.report_once("its calls differ from run to run");
                EntryState::Rejected
            }
            EntryState::Recorded(_, tries) => EntryState::Recorded(digest, tries + 1),
            _ => EntryState::Recorded(digest, 0),
        }
    }
}

impl ReplayBackend for GraphCache {
    fn begin(&mut self, key: &str, state: &[&Array], feeds: Vec<Feed>) -> Result<BackendReplay> {
        self.end(None);
        let address = |x: &&Array| Ok(storage::buffer_of(&self.arena, NAME, x)?.address());
        let addresses = state.iter().map(address).collect::<Result<Vec<_>>>()?;
        let entry = self.find_entry(key, &feeds)?;
        let (last_used, inputs) = (entry.last_used, entry.inputs.clone());
        let evictions = self.arena.evictions();
        if evictions != self.evictions {
            self.entries.iter_mut().for_each(|entry| entry.state = EntryState::Rejected);
            self.report_once("the device has too little memory to reserve any for graphs");
        }
        self.upload_inputs(&inputs, &feeds)?;
        let at = self.entries.iter().position(|entry| entry.last_used == last_used).unwrap_or(self.entries.len());
        if let Some(results) = self.replay_entry(at, &addresses)? {
            return Ok(BackendReplay::Replayed(results));
        }
        let records = match self.entries.get(at).map(|entry| &entry.state) {
            Some(EntryState::New) => self.arena.begin_scope(false),
            Some(EntryState::Recorded(..)) => self.arena.begin_scope(true),
            _ => false,
        };
        if records {
            self.current = Some(Recording { entry: last_used, addresses, evictions });
            self.recorder.begin_recording();
        }
        Ok(BackendReplay::Eager(inputs))
    }

    fn end(&mut self, results: Option<&[Array]>) {
        let Some(Recording { entry, addresses, evictions }) = self.current.take() else { return };
        let capture = self.recorder.end_recording();
        let at = self.entries.iter().position(|other| other.last_used == entry);
        if let (Some(at), Some(capture), Some(results)) = (at, capture, results) {
            let state = std::mem::replace(&mut self.entries[at].state, EntryState::New);
            let rejection = capture.rejection().map(str::to_owned);
            self.entries[at].state = match rejection {
                Some(why) => {
                    self.report_once(&why);
                    EntryState::Rejected
                }
                None if self.arena.evictions() != evictions => EntryState::New,
                None => self.next_state(state, capture, addresses, results),
            };
        }
        if self.arena.end_scope()
            && let Some(entry) = at.and_then(|at| self.entries.get_mut(at))
        {
            entry.state = EntryState::Rejected;
            self.report_once("it frees memory that was allocated before it");
        }
        let graph = |entry: &CacheEntry| matches!(entry.state, EntryState::Ready(_));
        self.evict_oldest(MAX_GRAPHS, graph);
    }

    fn remark(&mut self) -> Option<String> {
        self.remarks.pop_front()
    }
}

impl Drop for GraphCache {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// An input as part of an entry's key. The bound of ids belongs to it: it was checked against the rows that they name when the work was
/// captured, so that larger ids need a graph of their own.
fn describe_feed(feed: &Feed) -> String {
    let below = feed.below.map_or(String::new(), |below| format!(" below {below}"));
    format!("{} {}{below}", feed.data.dtype(), feed.shape)
}

fn no_type(dtype: DType) -> TensorError {
    TensorError::new(NAME, format!("this backend holds no {dtype}"))
}
