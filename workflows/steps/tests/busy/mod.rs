//! Load by other programs, for tests: [`BusyProcessors`].

use std::process::{Child, Command};

/// Programs that keep every processor busy until this value is dropped.
pub struct BusyProcessors(Vec<Child>);

impl BusyProcessors {
    /// Starts one program for each processor.
    pub fn start() -> BusyProcessors {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let one = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        BusyProcessors((0..processors).map(one).collect())
    }
}

impl Drop for BusyProcessors {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
