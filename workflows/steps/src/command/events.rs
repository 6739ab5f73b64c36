//! Reads the event files of TensorBoard that a program writes below its folder of outputs as metrics.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::config::to_metric_name;
use super::metrics::Point;
use crate::context::StepError;
use crate::event_file::EventReader;

/// How often new files are searched.
const LOOK: Duration = Duration::from_millis(500);
/// The maximum depth of the search.
const DEPTH: usize = 8;
/// The maximum number of folder entries that are visited.
const ENTRIES: usize = 10_000;
/// The maximum number of bytes that are read of a file at once.
const READ_AT_ONCE: u64 = 4 << 20;

/// A file written by the program.
struct EventFile {
    file: File,
    reader: EventReader,
}

/// Reads event files while the program writes them.
pub(super) struct EventFiles {
    folder: PathBuf,
    files: BTreeMap<PathBuf, EventFile>,
    next_look: Instant,
}

impl EventFiles {
    /// The event files below a folder.
    pub fn new(folder: &Path) -> Self {
        EventFiles { folder: folder.to_owned(), files: BTreeMap::new(), next_look: Instant::now() }
    }

    /// Appends the points that were completed since the last call. `ended`: the program has ended, so everything is read.
    ///
    /// # Errors
    /// [`StepError::Failed`] with the name of a file that is damaged or cannot be read. Earlier points were appended.
    pub fn read_points(&mut self, ended: bool, points: &mut Vec<Point>) -> Result<(), StepError> {
        if !ended && Instant::now() < self.next_look {
            return Ok(());
        }
        self.next_look = Instant::now() + LOOK;
        let (mut found, mut left) = (Vec::new(), ENTRIES);
        find_files(&self.folder, DEPTH, &mut left, &mut found);
        for path in found {
            if self.files.contains_key(&path) {
                continue;
            }
            match File::open(&path) {
                Ok(file) => drop(self.files.insert(path, EventFile { file, reader: EventReader::default() })),
                // The program has removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    let shown = path.strip_prefix(&self.folder).unwrap_or(&path).display();
                    return Err(StepError::failed(format!("cannot open the event file `{shown}`: {error}")));
                }
            }
        }
        for (path, event_file) in &mut self.files {
            let relative = path.strip_prefix(&self.folder).unwrap_or(path);
            read_file(event_file, relative, ended, points)?;
        }
        Ok(())
    }
}

fn read_file(file: &mut EventFile, relative: &Path, ended: bool, points: &mut Vec<Point>) -> Result<(), StepError> {
    let shown = relative.display();
    loop {
        let mut bytes = Vec::new();
        let read = Read::by_ref(&mut file.file).take(READ_AT_ONCE).read_to_end(&mut bytes);
        let read = read.map_err(|error| StepError::failed(format!("cannot read the event file `{shown}`: {error}")))?;
        let scalars = file.reader.read_bytes(&bytes).map_err(|error| StepError::Failed {
            message: format!("the event file `{shown}` in the folder of outputs: {error}"),
            hint: Some(
                "write it with TensorBoard's writer, and flush or close it; or give the file another name".into(),
            ),
        })?;
        for scalar in scalars {
            let name = metric_name(relative, &scalar.tag);
            points.push(Point { name, step: Some(u64::try_from(scalar.step).unwrap_or(0)), value: scalar.value });
        }
        if read == 0 || !ended {
            return Ok(());
        }
    }
}

/// The name of a metric: the folder of its file, if it is in one, and the tag. Writers use folders for parts of a program, such as
/// `train` and `validation`.
fn metric_name(file: &Path, tag: &str) -> String {
    let folder = file.parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    to_metric_name(&if folder.is_empty() { tag.to_owned() } else { format!("{folder}/{tag}") })
}

/// Adds the regular files whose names are those of event files. Links are not followed, since they may lead anywhere.
fn find_files(folder: &Path, depth: usize, left: &mut usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            find_files(&entry.path(), depth - 1, left, found);
        } else if kind.is_file() && entry.file_name().to_string_lossy().contains("tfevents") {
            found.push(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::event_file::{Scalar, encode_header, encode_scalar};

    fn record(tag: &str, step: i64, value: f64) -> Vec<u8> {
        encode_scalar(&Scalar { wall_time: 1.0, step, tag: tag.into(), value })
    }

    fn read(files: &mut EventFiles, ended: bool) -> Result<Vec<(String, u64, f64)>, StepError> {
        let mut points = Vec::new();
        files.next_look = Instant::now();
        files.read_points(ended, &mut points)?;
        Ok(points.into_iter().map(|point| (point.name, point.step.unwrap_or(0), point.value)).collect())
    }

    #[test]
    fn points_are_read_as_records_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train").join("events.out.tfevents.1.host");
        let mut files = EventFiles::new(folder.path());
        assert_eq!(read(&mut files, false).unwrap(), []);
        fs::create_dir(path.parent().unwrap()).unwrap();
        let mut file = File::create(&path).unwrap();
        let second = record("loss", 2, 0.25);
        file.write_all(&[encode_header(1.0), record("loss", 1, 0.5), second[..9].to_vec()].concat()).unwrap();
        assert_eq!(read(&mut files, false).unwrap(), [("train/loss".to_owned(), 1, 0.5)]);
        file.write_all(&second[9..]).unwrap();
        fs::write(folder.path().join("events.out.tfevents.2.host"), record("bad\ttag", -1, 1.0)).unwrap();
        assert_eq!(
            read(&mut files, true).unwrap(),
            [("bad_tag".to_owned(), 0, 1.0), ("train/loss".to_owned(), 2, 0.25)]
        );
        assert_eq!(read(&mut files, true).unwrap(), []);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.tfevents.1"), vec![7; 40]).unwrap();
        let refused = read(&mut EventFiles::new(folder.path()), true).unwrap_err().to_string();
        assert!(refused.contains("`a.tfevents.1`") && refused.contains("byte 0"), "{refused}");
    }
}
