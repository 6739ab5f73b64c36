//! Event files of TensorBoard: each folder with such files is a run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use assay_steps::event_file::EventReader;
use assay_store::{TrackedMetric, TrackedStatus};

use crate::{ForeignRun, ImportError, key_of};

/// Whether a file has the name of an event file.
pub(crate) fn is_event_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("tfevents"))
}

/// Reads the event files of a folder. The experiment has the name of `root`, and the run its path below it.
pub(crate) fn read_run(folder: &Path, root: &Path) -> Result<ForeignRun, ImportError> {
    let entries = fs::read_dir(folder).map_err(|error| ImportError::read(folder, error))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_event_file(path)).collect();
    files.sort();
    let (mut metrics, mut omissions, mut identity) = (Vec::new(), Vec::new(), Vec::new());
    for file in &files {
        let content = fs::read(file).map_err(|error| ImportError::read(file, error))?;
        let mut reader = EventReader::default();
        let scalars = reader.read_bytes(&content).map_err(|error| ImportError::read(file, error))?;
        metrics.extend(scalars.into_iter().map(|scalar| TrackedMetric {
            name: scalar.tag,
            value: scalar.value,
            at: (scalar.wall_time * 1000.0) as i64,
            step: scalar.step,
        }));
        identity.push(blake3::hash(&content));
    }
    if metrics.is_empty() {
        omissions.push("it has no scalars; pictures, texts and histograms are not imported".to_owned());
    }
    let absolute = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let experiment =
        absolute.file_name().map_or_else(|| "tensorboard".to_owned(), |name| name.to_string_lossy().into_owned());
    let below = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    let name = if below.is_empty() { experiment.clone() } else { below };
    let times: BTreeSet<i64> = metrics.iter().map(|point| point.at).collect();
    let parts: Vec<&[u8]> = identity.iter().map(|hash| hash.as_bytes().as_slice()).collect();
    Ok(ForeignRun {
        key: key_of(&[&[name.as_bytes()], parts.as_slice()].concat()),
        experiment,
        name,
        user: String::new(),
        status: TrackedStatus::Finished,
        start_time: times.first().copied().unwrap_or(0),
        end_time: times.last().copied(),
        params: Vec::new(),
        tags: Vec::new(),
        metrics,
        files: Vec::new(),
        omissions,
    })
}

#[cfg(test)]
mod tests {
    use assay_steps::event_file::{Scalar, encode_header, encode_scalar};

    use super::*;

    #[test]
    fn each_folder_with_event_files_is_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("lr=0.1/train");
        fs::create_dir_all(&run).unwrap();
        let file = run.join("events.out.tfevents.1.host");
        let scalar = |step: i64, value| Scalar { wall_time: 10.0 + step as f64, step, tag: "loss".into(), value };
        let mut content = encode_header(10.0);
        content.extend(encode_scalar(&scalar(1, 0.5)));
        content.extend(encode_scalar(&scalar(2, 0.25)));
        fs::write(&file, &content).unwrap();
        let read = read_run(&run, folder.path()).unwrap();
        assert_eq!((read.name.as_str(), read.start_time, read.end_time), ("lr=0.1/train", 11_000, Some(12_000)));
        let points: Vec<_> = read.metrics.iter().map(|point| (point.step, point.value)).collect();
        assert_eq!(points, [(1, 0.5), (2, 0.25)]);
        assert_eq!(read.key, read_run(&run, folder.path()).unwrap().key);
        let middle = content.len() / 2;
        content[middle] ^= 1;
        fs::write(&file, &content).unwrap();
        let error = read_run(&run, folder.path()).unwrap_err().to_string();
        assert!(error.contains("tfevents"), "{error}");
    }
}
