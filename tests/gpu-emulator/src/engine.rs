//! The common functions of both vendors' libraries: devices, memory, modules, streams, graphs and events.
//!
//! Everything is executed immediately, on the calling thread, but a kernel's failure is reported as by hardware: by
//! every call after the launch, until the context is destroyed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::memory::{Memory, Wrong};
use crate::product::Product;
use crate::report::report;
use crate::run::{Fault, Grid, Index3, Kernel, Library, Problem};
use crate::settings::{Injected, settings};

/// The reason for refusing a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    OutOfMemory,
    InvalidValue,
    InvalidDevice,
    InvalidContext,
    InvalidHandle,
    InvalidImage,
    NotFound,
    TooManyResources,
    /// A kernel caused this problem. The context can no longer be used.
    Fault(Problem),
    /// The device is lost.
    Lost,
    CaptureUnsupported,
    CaptureInvalidated,
    NotReady,
}

pub(crate) type Done<T = ()> = Result<T, Refusal>;

/// One operation of a stream.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Launch(Arc<Launch>),
    Copy { to: u64, from: u64, bytes: u64 },
    Clear { at: u64, value: u8, bytes: u64 },
    Product(Box<Product>),
    Record { event: u64 },
}

#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: Index3,
    pub(crate) block: Index3,
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Stream {
    device: usize,
    /// The operations since the capture started, or an error if the capture is invalid.
    capture: Option<Result<Vec<Work>, ()>>,
}

struct Function {
    module: u64,
    name: String,
    kernel: Kernel,
    /// The maximum dynamic shared memory of its launches.
    dynamic: u32,
}

/// The default limit of dynamic shared memory.
const DYNAMIC: u32 = 48 * 1024;
/// The largest limit that can be set.
pub(crate) const DYNAMIC_MOST: u32 = 160 * 1024;
const THREADS: u32 = 1024;

#[derive(Debug, Default)]
struct Device {
    retained: u32,
    used: u64,
    broken: Option<Refusal>,
}

/// The state of the libraries, one per process.
pub(crate) struct Engine {
    memory: Memory,
    devices: Vec<Device>,
    wave: u32,
    next: u64,
    allocations: u64,
    allocated: u64,
    launches: u64,
    streams: BTreeMap<u64, Stream>,
    modules: BTreeMap<u64, (usize, Library)>,
    functions: BTreeMap<u64, Function>,
    graphs: BTreeMap<u64, (usize, Arc<Vec<Work>>)>,
    events: BTreeMap<u64, (usize, Option<Instant>)>,
    pinned: BTreeMap<u64, (usize, Vec<u8>)>,
}

static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);

thread_local! {
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The device of the calling thread's context.
pub(crate) fn current() -> Done<usize> {
    CURRENT.get().ok_or(Refusal::InvalidContext)
}

/// Sets the calling thread's current context.
pub(crate) fn set_current(device: Option<usize>) {
    CURRENT.set(device);
}

/// Calls a function with the engine, which is created at the first call. `wave` is the width of its devices' waves.
pub(crate) fn with<T>(wave: u32, work: impl FnOnce(&mut Engine) -> Done<T>) -> Done<T> {
    let mut engine: MutexGuard<'_, Option<Engine>> = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    if engine.is_none() {
        *engine = Engine::new(wave);
    }
    work(engine.as_mut().ok_or(Refusal::OutOfMemory)?)
}

impl Engine {
    fn new(wave: u32) -> Option<Engine> {
        Some(Engine {
            memory: Memory::new()?,
            devices: (0..settings().devices).map(|_| Device::default()).collect(),
            wave,
            // Handles that differ from all addresses of the host.
            next: 0x1000,
            allocations: 0,
            allocated: 0,
            launches: 0,
            streams: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            graphs: BTreeMap::new(),
            events: BTreeMap::new(),
            pinned: BTreeMap::new(),
        })
    }

    fn handle(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// The device of the call, if it can be used.
    fn sound(&self) -> Done<usize> {
        let device = current()?;
        match self.devices.get(device).ok_or(Refusal::InvalidDevice)?.broken {
            Some(refusal) => Err(refusal),
            None => Ok(device),
        }
    }

    /// The device of a call that is not allowed while one of its streams captures.
    fn outside_capture(&mut self, call: &str) -> Done<usize> {
        let device = self.sound()?;
        let mut spoilt = false;
        for stream in self.streams.values_mut().filter(|stream| stream.device == device && stream.capture.is_some()) {
            stream.capture = Some(Err(()));
            spoilt = true;
        }
        if spoilt {
            report(&format!("{call} was called while a stream captures"));
            return Err(Refusal::CaptureUnsupported);
        }
        Ok(device)
    }

    fn wrong(&self, call: &str, address: u64, bytes: u64, wrong: Wrong) -> Refusal {
        let what = self.memory.describe(address);
        let how = match wrong {
            Wrong::Unaddressable => "is not all allocated",
            Wrong::Uninitialised => "was not all written before it was read",
        };
        report(&format!("{call} of {bytes} bytes from {what} on: it {how}"));
        Refusal::InvalidValue
    }

    // Contexts.

    pub(crate) fn retain(&mut self, device: usize) -> Done {
        self.devices.get_mut(device).ok_or(Refusal::InvalidDevice)?.retained += 1;
        Ok(())
    }

    /// Releases a context; the last release destroys it, and memory that it still held is a leak.
    pub(crate) fn release(&mut self, device: usize) -> Done {
        let state = self.devices.get_mut(device).ok_or(Refusal::InvalidDevice)?;
        state.retained = state.retained.checked_sub(1).ok_or(Refusal::InvalidContext)?;
        if state.retained > 0 {
            return Ok(());
        }
        // A broken context accepts no calls, so memory could not be released.
        let told = state.broken.is_none();
        self.leaks(device, told);
        self.streams.retain(|_, stream| stream.device != device);
        let lost: Vec<u64> =
            self.modules.iter().filter(|(_, (owner, _))| *owner == device).map(|(&id, _)| id).collect();
        self.functions.retain(|_, function| !lost.contains(&function.module));
        self.modules.retain(|_, (owner, _)| *owner != device);
        self.graphs.retain(|_, (owner, _)| *owner != device);
        self.events.retain(|_, (owner, _)| *owner != device);
        self.pinned.retain(|_, (owner, _)| *owner != device);
        // A fault ends with its context; a lost device stays lost.
        let kept = self.devices[device].broken.filter(|refusal| *refusal == Refusal::Lost);
        self.devices[device] = Device { broken: kept, ..Device::default() };
        Ok(())
    }

    /// Releases the memory of the context, and reports it as leaks if they are the caller's fault.
    fn leaks(&mut self, device: usize, told: bool) {
        let blocks: Vec<_> = self.memory.of(device).collect();
        for (address, block) in &blocks {
            if told {
                report(&format!("leak: allocation {} of {} bytes was never freed", block.number, block.bytes));
            }
            self.memory.free(*address);
        }
        for (what, count) in [
            ("stream", self.streams.values().filter(|stream| stream.device == device).count()),
            ("module", self.modules.values().filter(|(owner, _)| *owner == device).count()),
            ("graph", self.graphs.values().filter(|(owner, _)| *owner == device).count()),
            ("event", self.events.values().filter(|(owner, _)| *owner == device).count()),
            ("pinned block", self.pinned.values().filter(|(owner, _)| *owner == device).count()),
        ] {
            if told && count > 0 {
                report(&format!("leak: {count} {what}(s) never destroyed"));
            }
        }
    }

    pub(crate) fn synchronize(&mut self) -> Done {
        self.outside_capture("a synchronisation").map(|_| ())
    }

    // Memory.

    pub(crate) fn allocate(&mut self, bytes: u64) -> Done<u64> {
        let device = self.outside_capture("an allocation")?;
        if bytes == 0 {
            return Err(Refusal::InvalidValue);
        }
        self.allocations += 1;
        let injected = match settings().fails_on(device) {
            Some(Injected::Allocation(number)) => number == self.allocations,
            Some(Injected::Bytes(most)) => self.allocated + bytes > most,
            _ => false,
        };
        let used = self.devices[device].used + bytes;
        if injected || used > settings().memory as u64 {
            return Err(Refusal::OutOfMemory);
        }
        let address = self.memory.allocate(device, bytes, self.allocations).ok_or(Refusal::OutOfMemory)?;
        self.devices[device].used = used;
        self.allocated += bytes;
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Done {
        self.outside_capture("a release of memory")?;
        let Some(block) = self.memory.free(address) else {
            report(&format!("free of {}, where no allocation begins", self.memory.describe(address)));
            return Err(Refusal::InvalidValue);
        };
        self.devices[block.device].used -= block.bytes;
        Ok(())
    }

    pub(crate) fn room(&self) -> Done<(u64, u64)> {
        let device = self.sound()?;
        let total = settings().memory as u64;
        Ok((total - self.devices[device].used, total))
    }

    /// Pinned host memory, from which copies may be asynchronous.
    pub(crate) fn allocate_pinned(&mut self, bytes: usize) -> Done<*mut u8> {
        let device = self.outside_capture("an allocation of pinned memory")?;
        let mut block = vec![0; bytes];
        let at = block.as_mut_ptr();
        self.pinned.insert(at as u64, (device, block));
        Ok(at)
    }

    pub(crate) fn free_pinned(&mut self, at: *mut u8) -> Done {
        self.pinned.remove(&(at as u64)).map(|_| ()).ok_or(Refusal::InvalidValue)
    }

    fn is_pinned(&self, from: u64, bytes: u64) -> bool {
        let before = self.pinned.range(..=from).next_back();
        before.is_some_and(|(at, (_, block))| from + bytes <= at + block.len() as u64)
    }

    /// An asynchronous copy. A driver may read unpinned memory after the call has returned, when its owner may have changed
    /// or freed it.
    ///
    /// # Safety
    /// `from` is readable for `bytes`.
    pub(crate) unsafe fn copy_in(&mut self, to: u64, from: *const u8, bytes: u64) -> Done {
        self.outside_capture("a copy from the host")?;
        if !self.is_pinned(from as u64, bytes) {
            report(&format!("an asynchronous copy of {bytes} bytes from memory of the host that is not pinned"));
        }
        let target = self.memory.written(to, bytes).map_err(|wrong| self.wrong("a copy in", to, bytes, wrong))?;
        // SAFETY: guaranteed by the caller.
        target.copy_from_slice(unsafe { std::slice::from_raw_parts(from, bytes as usize) });
        Ok(())
    }

    /// # Safety
    /// `to` is writable for `bytes`.
    pub(crate) unsafe fn copy_out(&mut self, to: *mut u8, from: u64, bytes: u64) -> Done {
        self.outside_capture("a copy to the host")?;
        let source = self.memory.read(from, bytes).map_err(|wrong| self.wrong("a copy out", from, bytes, wrong))?;
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(to, bytes as usize) }.copy_from_slice(source);
        Ok(())
    }

    // Modules.

    pub(crate) fn load(&mut self, code: &[u8]) -> Done<u64> {
        let device = self.outside_capture("loading a module")?;
        let library = Library::load(code).map_err(|error| {
            report(&format!("a module cannot be loaded: {error}"));
            Refusal::InvalidImage
        })?;
        let id = self.handle();
        self.modules.insert(id, (device, library));
        Ok(id)
    }

    pub(crate) fn unload(&mut self, module: u64) -> Done {
        self.functions.retain(|_, function| function.module != module);
        self.modules.remove(&module).map(|_| ()).ok_or(Refusal::InvalidHandle)
    }

    pub(crate) fn function(&mut self, module: u64, name: &str) -> Done<u64> {
        self.sound()?;
        let (_, library) = self.modules.get(&module).ok_or(Refusal::InvalidHandle)?;
        let kernel = library.kernel(name).ok_or(Refusal::NotFound)?;
        let id = self.handle();
        self.functions.insert(id, Function { module, name: name.to_owned(), kernel, dynamic: DYNAMIC });
        Ok(id)
    }

    /// Sets the limit of a function's dynamic shared memory.
    pub(crate) fn allow_dynamic(&mut self, function: u64, bytes: u32) -> Done {
        self.sound()?;
        let function = self.functions.get_mut(&function).ok_or(Refusal::InvalidHandle)?;
        if bytes > DYNAMIC_MOST {
            return Err(Refusal::InvalidValue);
        }
        function.dynamic = bytes;
        Ok(())
    }

    /// The sizes of a kernel's parameters.
    pub(crate) fn parameters(&self, function: u64) -> Done<Vec<u32>> {
        Ok(self.functions.get(&function).ok_or(Refusal::InvalidHandle)?.kernel.sizes().to_vec())
    }

    // Streams.

    pub(crate) fn stream(&mut self) -> Done<u64> {
        let device = self.sound()?;
        let id = self.handle();
        self.streams.insert(id, Stream { device, capture: None });
        Ok(id)
    }

    pub(crate) fn end_stream(&mut self, stream: u64) -> Done {
        self.streams.remove(&stream).map(|_| ()).ok_or(Refusal::InvalidHandle)
    }

    /// Executes an operation, or records it if the stream captures.
    pub(crate) fn enqueue(&mut self, stream: u64, work: Work) -> Done {
        let device = self.sound()?;
        if let Work::Launch(launch) = &work {
            self.allowed(launch)?;
        }
        if stream != 0 {
            let stream = self.streams.get_mut(&stream).ok_or(Refusal::InvalidHandle)?;
            match &mut stream.capture {
                Some(Ok(noted)) => {
                    noted.push(work);
                    return Ok(());
                }
                Some(Err(())) => return Err(Refusal::CaptureInvalidated),
                None => {}
            }
        }
        self.carry_out(device, &work)
    }

    pub(crate) fn begin_capture(&mut self, stream: u64) -> Done {
        self.sound()?;
        let stream = self.streams.get_mut(&stream).ok_or(Refusal::CaptureUnsupported)?;
        if stream.capture.is_some() {
            return Err(Refusal::CaptureUnsupported);
        }
        stream.capture = Some(Ok(Vec::new()));
        Ok(())
    }

    pub(crate) fn end_capture(&mut self, stream: u64) -> Done<u64> {
        let device = self.sound()?;
        let stream = self.streams.get_mut(&stream).ok_or(Refusal::InvalidHandle)?;
        let noted = stream.capture.take().ok_or(Refusal::CaptureUnsupported)?;
        let works = noted.map_err(|()| Refusal::CaptureInvalidated)?;
        let id = self.handle();
        self.graphs.insert(id, (device, Arc::new(works)));
        Ok(id)
    }

    // Graphs. A graph and its executable form are the same here.

    pub(crate) fn instantiate(&mut self, graph: u64) -> Done<u64> {
        let device = self.outside_capture("making a graph executable")?;
        let works = self.graphs.get(&graph).ok_or(Refusal::InvalidHandle)?.1.clone();
        let id = self.handle();
        self.graphs.insert(id, (device, works));
        Ok(id)
    }

    pub(crate) fn end_graph(&mut self, graph: u64) -> Done {
        self.graphs.remove(&graph).map(|_| ()).ok_or(Refusal::InvalidHandle)
    }

    pub(crate) fn replay(&mut self, graph: u64) -> Done {
        let device = self.outside_capture("a graph's launch")?;
        let works = self.graphs.get(&graph).ok_or(Refusal::InvalidHandle)?.1.clone();
        works.iter().try_for_each(|work| self.carry_out(device, work))
    }

    // Events.

    pub(crate) fn event(&mut self) -> Done<u64> {
        let device = self.sound()?;
        let id = self.handle();
        self.events.insert(id, (device, None));
        Ok(id)
    }

    pub(crate) fn end_event(&mut self, event: u64) -> Done {
        self.events.remove(&event).map(|_| ()).ok_or(Refusal::InvalidHandle)
    }

    /// Milliseconds from one event to the other.
    pub(crate) fn elapsed(&self, from: u64, to: u64) -> Done<f32> {
        self.sound()?;
        let at = |event| self.events.get(&event).ok_or(Refusal::InvalidHandle)?.1.ok_or(Refusal::NotReady);
        Ok(at(to)?.saturating_duration_since(at(from)?).as_secs_f32() * 1e3)
    }

    // Work.

    fn allowed(&self, launch: &Launch) -> Done {
        let function = self.functions.get(&launch.function).ok_or(Refusal::InvalidHandle)?;
        let Index3 { x, y, z } = launch.block;
        let threads = x.saturating_mul(y).saturating_mul(z);
        let bounds = if function.kernel.threads == 0 { THREADS } else { function.kernel.threads };
        let grid = launch.grid;
        if threads == 0 || z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 {
            report(&format!("`{}` is launched with the grid {grid:?} of blocks {:?}", function.name, launch.block));
            return Err(Refusal::InvalidValue);
        }
        if threads > bounds {
            report(&format!("`{}` is launched with {threads} threads, and takes {bounds}", function.name));
            return Err(Refusal::TooManyResources);
        }
        if launch.shared > function.dynamic {
            report(&format!("`{}` is launched with {} bytes of shared memory", function.name, launch.shared));
            return Err(Refusal::InvalidValue);
        }
        Ok(())
    }

    fn carry_out(&mut self, device: usize, work: &Work) -> Done {
        match work {
            Work::Launch(launch) => self.run(device, launch),
            Work::Copy { to, from, bytes } => self.memory.copy(*to, *from, *bytes).map_err(|wrong| {
                report(&format!("a copy of {bytes} bytes to {}: {wrong:?}", self.memory.describe(*to)));
                self.wrong("a copy", *from, *bytes, wrong)
            }),
            Work::Clear { at, value, bytes } => {
                let target = self.memory.written(*at, *bytes);
                target.map(|target| target.fill(*value)).map_err(|wrong| self.wrong("a fill", *at, *bytes, wrong))
            }
            Work::Product(product) => product.carry_out(&self.memory).map_err(|(what, address, wrong)| {
                let refusal = self.wrong(&format!("the product's {what}"), address, 1, wrong);
                self.devices[device].broken = Some(Refusal::Fault(Problem::OutOfBounds));
                refusal
            }),
            Work::Record { event } => {
                let (_, at) = self.events.get_mut(event).ok_or(Refusal::InvalidHandle)?;
                *at = Some(Instant::now());
                Ok(())
            }
        }
    }

    fn run(&mut self, device: usize, launch: &Launch) -> Done {
        self.launches += 1;
        match settings().fails_on(device) {
            Some(Injected::Lost(number)) if self.launches >= number => {
                self.devices[device].broken = Some(Refusal::Lost);
                return Ok(());
            }
            Some(Injected::Fault(number)) if self.launches == number => {
                self.devices[device].broken = Some(Refusal::Fault(Problem::OutOfBounds));
                return Ok(());
            }
            _ => {}
        }
        let function = self.functions.get(&launch.function).ok_or(Refusal::InvalidHandle)?;
        let (_, library) = self.modules.get(&function.module).ok_or(Refusal::InvalidHandle)?;
        let extents = self.memory.extents();
        let grid = Grid {
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.shared,
            wave: self.wave,
            // Each launch has a different order.
            seed: if settings().seed == 0 { 0 } else { settings().seed.wrapping_mul(self.launches) | 1 },
            device: self.memory.base(),
            device_bytes: self.memory.bytes(),
            shadow: self.memory.shadow(),
            extents: &extents,
        };
        if let Err(fault) = library.run(&function.kernel, &grid, &launch.arguments) {
            report(&self.told(&function.name, &fault));
            self.devices[device].broken = Some(Refusal::Fault(fault.problem));
        }
        Ok(())
    }

    fn told(&self, kernel: &str, fault: &Fault) -> String {
        let Fault { problem, bytes, address, write, block, thread, text } = fault;
        let verb = if *write { "writes" } else { "reads" };
        let at = || self.memory.describe(*address);
        let what = match problem {
            Problem::OutOfBounds if text == "device memory" => format!("{verb} {bytes} bytes at {}", at()),
            Problem::OutOfBounds => format!("{verb} {bytes} bytes at {address:#x}, outside of {text}"),
            Problem::Uninitialised if text == "device memory" => {
                format!("reads {bytes} bytes that nobody wrote, at {}", at())
            }
            Problem::Uninitialised => format!("reads {bytes} bytes of {text} that nobody wrote"),
            Problem::Misaligned => format!("{verb} {bytes} bytes at {address:#x}, which is not a multiple of that"),
            Problem::Race => format!("{verb} {bytes} bytes of shared memory {text}"),
            Problem::Barrier | Problem::Trap => text.clone(),
            Problem::Signal => format!("gets {text} at {address:#x}"),
        };
        let Index3 { x, y, z } = thread;
        format!("`{kernel}`, thread ({x}, {y}, {z}) of block ({}, {}, {}): {what}", block.x, block.y, block.z)
    }
}
