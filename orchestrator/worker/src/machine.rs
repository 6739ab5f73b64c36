//! The resources of the machine, which all runs on it share: processors, devices, and exclusive use.
//!
//! Each resource is a lock on a file in one folder, which does not depend on the store. The locks are advisory and
//! belong to open files, so the kernel releases them however a process ends.
//!
//! - An attempt holds `alone` shared, one lock for each of its processors, and one for its device. An exclusive attempt
//!   holds `alone` exclusively, and needs no other lock.
//! - A waiting attempt holds `turn`, and no new attempt starts meanwhile: tasks that need few resources cannot starve a
//!   task that needs many. An attempt that waits for a device releases `turn`, since devices are held for hours.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The variable that names another folder for the locks.
pub const MACHINE: &str = "ASSAY_MACHINE";

/// The resources of this machine, shared by its runs.
#[derive(Debug, Clone)]
pub struct Machine {
    folder: PathBuf,
    cpus: u32,
}

/// The resources that an attempt needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Processors.
    pub cpus: u32,
    /// Whether no other attempt may run meanwhile.
    pub exclusive: bool,
    /// A backend, and the number of one of its devices.
    pub device: Option<(String, u32)>,
}

/// What an attempt waits for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocker {
    /// Another attempt is already waiting.
    #[error("waits for its turn: tasks of other runs wait for this machine, too")]
    Turn,
    /// It needs the machine exclusively, and other attempts run.
    #[error("waits for the machine to itself: tasks of other runs are running on it")]
    Others,
    /// An exclusive attempt runs.
    #[error("waits: a task of another run has this machine to itself")]
    Exclusive,
    /// Too few processors are free.
    #[error("waits for processors: tasks of other runs use them")]
    Cpus,
    /// The device is in use.
    #[error("waits for device {1} of `{0}`: a task of another run uses it")]
    Device(String, u32),
}

/// Claimed resources. Dropping this releases them.
#[derive(Debug)]
pub struct Claim {
    _locks: Vec<File>,
}

/// An attempt that waits for resources.
#[derive(Debug)]
pub struct Queued<'a> {
    machine: &'a Machine,
    need: Need,
    turn: Option<File>,
}

impl Machine {
    /// The machine of this user's runs: the locks are in the folder named by [`MACHINE`], or otherwise in one in `/tmp`.
    /// The folder does not depend on the store, the session or `TMPDIR`. `cpus` is the number of processors.
    ///
    /// # Errors
    /// If the folder cannot be created, or belongs to another user; the message says what to do.
    pub fn open(cpus: u32) -> io::Result<Machine> {
        let user = rustix::process::getuid().as_raw();
        let named = std::env::var_os(MACHINE).filter(|folder| !folder.is_empty());
        let folder = named.map_or_else(|| PathBuf::from(format!("/tmp/assay-machine-{user}")), PathBuf::from);
        Machine::open_in(&folder, cpus).map_err(|error| {
            let folder = folder.display();
            let message = format!(
                "cannot keep the locks of this machine in `{folder}`: {error}; name a folder of yours, the same for all \
                 of your runs, with the environment variable {MACHINE}"
            );
            io::Error::new(error.kind(), message)
        })
    }

    /// A machine whose locks are in this folder, which is created if it is missing.
    ///
    /// # Errors
    /// If it cannot be created, or belongs to another user.
    pub fn open_in(folder: &Path, cpus: u32) -> io::Result<Machine> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Any user may write to `/tmp`: a link there would redirect our files.
        let found = std::fs::symlink_metadata(folder)?;
        if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a folder that this user owns"));
        }
        Ok(Machine { folder: folder.to_owned(), cpus: cpus.max(1) })
    }

    /// Starts to wait for resources.
    #[must_use]
    pub fn join_queue(&self, need: Need) -> Queued<'_> {
        Queued { machine: self, need, turn: None }
    }

    fn open_lock_file(&self, name: &str) -> io::Result<File> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(self.folder.join(name))?;
        // Programs that clean `/tmp` delete files that were not used for days.
        let _ = file.set_modified(SystemTime::now());
        Ok(file)
    }

    fn try_lock(&self, name: &str) -> io::Result<Option<File>> {
        let file = self.open_lock_file(name)?;
        Ok(lock_acquired(file.try_lock())?.then_some(file))
    }

    fn try_share(&self, name: &str) -> io::Result<Option<File>> {
        let file = self.open_lock_file(name)?;
        Ok(lock_acquired(file.try_lock_shared())?.then_some(file))
    }

    fn try_cpus(&self, cpus: u32) -> io::Result<Option<Vec<File>>> {
        let mut taken = Vec::new();
        // A task may request more processors than the machine has; it then uses all.
        let wanted = cpus.min(self.cpus) as usize;
        for number in 0..self.cpus {
            if taken.len() == wanted {
                break;
            }
            taken.extend(self.try_lock(&format!("cpu-{number}"))?);
        }
        Ok((taken.len() == wanted).then_some(taken))
    }

    fn try_need(&self, need: &Need) -> io::Result<Result<Claim, Blocker>> {
        if need.exclusive {
            let alone = self.try_lock("alone")?;
            return Ok(alone.map(|alone| Claim { _locks: vec![alone] }).ok_or(Blocker::Others));
        }
        let Some(alone) = self.try_share("alone")? else { return Ok(Err(Blocker::Exclusive)) };
        let mut locks = vec![alone];
        if let Some((backend, number)) = &need.device {
            match self.try_lock(&format!("device-{backend}-{number}"))? {
                Some(device) => locks.push(device),
                None => return Ok(Err(Blocker::Device(backend.clone(), *number))),
            }
        }
        let Some(cpus) = self.try_cpus(need.cpus)? else { return Ok(Err(Blocker::Cpus)) };
        locks.extend(cpus);
        Ok(Ok(Claim { _locks: locks }))
    }
}

impl Queued<'_> {
    /// Claims the resources if they are free now; otherwise returns what blocks it. Call this again after a while:
    /// waiting for a lock in the kernel could not be cancelled.
    ///
    /// # Errors
    /// If the lock files cannot be used.
    pub fn try_claim(&mut self) -> io::Result<Result<Claim, Blocker>> {
        if self.turn.is_none() {
            self.turn = self.machine.try_lock("turn")?;
        }
        if self.turn.is_none() {
            return Ok(Err(Blocker::Turn));
        }
        let claim = self.machine.try_need(&self.need)?;
        if matches!(claim, Ok(_) | Err(Blocker::Device(..))) {
            self.turn = None;
        }
        Ok(claim)
    }
}

fn lock_acquired(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(cpus: u32) -> Need {
        Need { cpus, exclusive: false, device: None }
    }

    fn exclusive_need() -> Need {
        Need { exclusive: true, ..need(1) }
    }

    fn on_device(number: u32) -> Need {
        Need { device: Some(("cuda".into(), number)), ..need(1) }
    }

    /// Two runs: each opens the machine separately.
    fn open_twice(cpus: u32) -> (tempfile::TempDir, Machine, Machine) {
        let folder = tempfile::tempdir().unwrap();
        let open = || Machine::open_in(&folder.path().join("machine"), cpus).unwrap();
        let (one, two) = (open(), open());
        (folder, one, two)
    }

    fn claim_now(machine: &Machine, need: Need) -> Result<Claim, Blocker> {
        machine.join_queue(need).try_claim().unwrap()
    }

    #[test]
    fn the_processors_of_a_machine_are_given_once() {
        let (_folder, one, two) = open_twice(2);
        let first = claim_now(&one, need(1)).unwrap();
        let second = claim_now(&two, need(1)).unwrap();
        assert_eq!(claim_now(&one, need(1)).unwrap_err(), Blocker::Cpus);
        drop(first);
        let third = claim_now(&one, need(1)).unwrap();
        drop((second, third));
        let both = claim_now(&two, need(2)).unwrap();
        assert_eq!(claim_now(&one, need(1)).unwrap_err(), Blocker::Cpus);
        drop(both);
        assert!(claim_now(&one, need(64)).is_ok(), "more than there is are all of them");
    }

    #[test]
    fn an_exclusive_attempt_runs_beside_nothing_of_any_run() {
        let (_folder, one, two) = open_twice(4);
        let other = claim_now(&one, need(1)).unwrap();
        assert_eq!(claim_now(&two, exclusive_need()).unwrap_err(), Blocker::Others);
        drop(other);
        let measurement = claim_now(&two, exclusive_need()).unwrap();
        assert_eq!(claim_now(&one, need(1)).unwrap_err(), Blocker::Exclusive);
        assert_eq!(claim_now(&one, exclusive_need()).unwrap_err(), Blocker::Others);
        drop(measurement);
        assert!(claim_now(&one, need(1)).is_ok());
    }

    #[test]
    fn what_begins_later_does_not_overtake_who_waits() {
        let (_folder, one, two) = open_twice(2);
        let running = claim_now(&one, need(1)).unwrap();
        let mut waiting = two.join_queue(exclusive_need());
        assert_eq!(waiting.try_claim().unwrap().unwrap_err(), Blocker::Others);
        assert_eq!(claim_now(&one, need(1)).unwrap_err(), Blocker::Turn, "a processor is free, and it is not its turn");
        drop(running);
        let measurement = waiting.try_claim().unwrap().unwrap();
        drop(measurement);
        assert!(claim_now(&one, need(1)).is_ok());
        // A cancelled wait releases its turn.
        let running = claim_now(&one, need(1)).unwrap();
        let mut waiting = two.join_queue(exclusive_need());
        assert!(waiting.try_claim().unwrap().is_err());
        drop(waiting);
        assert!(claim_now(&one, need(1)).is_ok());
        drop(running);
    }

    #[test]
    fn a_device_is_given_once_and_who_waits_for_it_holds_up_nobody() {
        let (_folder, one, two) = open_twice(4);
        let training = claim_now(&one, on_device(0)).unwrap();
        let mut waiting = two.join_queue(on_device(0));
        assert_eq!(waiting.try_claim().unwrap().unwrap_err(), Blocker::Device("cuda".into(), 0));
        assert!(claim_now(&two, on_device(1)).is_ok() && claim_now(&one, need(1)).is_ok());
        drop(training);
        assert!(waiting.try_claim().unwrap().is_ok());
    }

    #[test]
    fn a_folder_of_somebody_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert_eq!(Machine::open_in(&link, 1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(Machine::open_in(&file, 1).is_err());
    }
}
