//! Converts between the messages of the wire, which name files by hashes, and those of this process, which name them by paths.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use assay_core::AttemptId;
use assay_protocol::{AttemptEvent, AttemptOutcome, Failure, FailureClass};
use assay_wire as wire;
use assay_worker::hash_file;
use assay_worker::link::Assignment;

use super::memory::LabBody;

/// The most files of a checkpoint that are sent to another worker.
const MOST_FILES: usize = 1000;

/// The folder for what a worker uploads for an attempt.
pub(super) fn upload_folder(uploads: &Path, attempt: AttemptId) -> PathBuf {
    let AttemptId { task, epoch } = attempt;
    uploads.join(format!("{}-{}-{epoch}", task.run, task.task))
}

/// An assignment for a worker that does not share this machine's files.
pub(super) fn assignment_for_wire(assignment: Assignment) -> wire::Assignment {
    // Without a checkpoint the attempt starts over.
    let checkpoint = list_checkpoint(&assignment.resume).unwrap_or_default();
    let resume = assignment.resume.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    wire::Assignment {
        attempt: assignment.attempt,
        address: assignment.address,
        backend: assignment.backend,
        device: assignment.device,
        kind: assignment.kind,
        config: assignment.config,
        artifacts: assignment.artifacts.into_keys().collect(),
        resume,
        checkpoint,
        exclusive: assignment.exclusive,
        threads: assignment.threads,
        replicate: assignment.replicate,
        timeout_ms: assignment.timeout_ms,
        memory: assignment.memory,
    }
}

/// The files that an earlier attempt left. A part of a checkpoint would be a wrong one, so it is an error if one of its files cannot be
/// read, or if there are too many.
fn list_checkpoint(folder: &Path) -> std::io::Result<Vec<wire::FileRef>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let (path, kind) = (format!("{prefix}{name}"), entry.file_type()?);
            if kind.is_dir() {
                folders.push((entry.path(), format!("{path}/")));
            } else if kind.is_file() && wire::is_relative_path(&path) {
                if files.len() == MOST_FILES {
                    return Err(Error::from(ErrorKind::InvalidInput));
                }
                files.push(wire::FileRef { path, hash: hash_file(&entry.path())? });
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Converts a report, and places its files where the store can take them from. Blocks on files.
pub(super) fn read_report(uploads: &Path, report: wire::AttemptReport) -> LabBody {
    let folder = upload_folder(uploads, report.attempt);
    let event = match report.body {
        wire::ReportBody::Queued { why } => AttemptEvent::Queued(why),
        wire::ReportBody::Greeted { hello } => AttemptEvent::Greeted(hello),
        wire::ReportBody::Started => AttemptEvent::Started,
        wire::ReportBody::Progress { progress } => AttemptEvent::Progress(progress),
        wire::ReportBody::Metrics { points } => AttemptEvent::Metrics(points),
        wire::ReportBody::Log { level, text } => AttemptEvent::Log(level, text),
        wire::ReportBody::Checkpoint { files } => {
            let place = folder.join(format!("checkpoint-{}", report.seq));
            // If this fails, `place` does not exist, and the checkpoint before it stays.
            let _ = lay_out_checkpoint(&folder, &place, &files);
            return LabBody::Checkpoint(place);
        }
        wire::ReportBody::Ended { ended: wire::Ended::Failed { failure } } => {
            return LabBody::Ended(AttemptOutcome::Failed(failure), Vec::new());
        }
        wire::ReportBody::Ended { ended: wire::Ended::Completed { values, artifacts } } => {
            return match lay_out_outputs(&folder, &artifacts) {
                Ok(files) => LabBody::Ended(AttemptOutcome::Completed(values), files),
                Err(message) => {
                    let failure = Failure { class: FailureClass::Output, message, hint: None };
                    LabBody::Ended(AttemptOutcome::Failed(failure), Vec::new())
                }
            };
        }
    };
    LabBody::Event(event)
}

/// Links uploaded files to their names, each in a separate folder.
fn lay_out_outputs(folder: &Path, artifacts: &[wire::UploadedFile]) -> Result<Vec<(String, PathBuf)>, String> {
    let mut files = Vec::new();
    for (number, artifact) in artifacts.iter().enumerate() {
        let wire::UploadedFile { output, file, hash } = artifact;
        let shown = assay_spec::printable(output);
        if !wire::is_file_name(file) || !wire::is_hash(hash) {
            let named = assay_spec::printable(file).into_owned();
            return Err(format!(
                "its worker reported the output `{shown}` as the file `{named}`, which is not a file name"
            ));
        }
        let place = folder.join(format!("output-{number}"));
        let path = place.join(file);
        // When a report comes twice, the store may be reading the file already.
        let linked = std::fs::create_dir_all(&place).and_then(|()| match path.exists() {
            true => Ok(()),
            false => std::fs::hard_link(folder.join(hash), &path),
        });
        linked
            .map_err(|error| format!("its worker reported the output `{shown}`, which it did not upload: {error}"))?;
        files.push((output.clone(), path));
    }
    Ok(files)
}

/// The name of an uploaded file of a checkpoint. An output with the same content has another name: it is still needed when the checkpoint's
/// files have been moved.
pub(super) fn checkpoint_name(hash: &str) -> String {
    format!("state-{hash}")
}

/// Moves uploaded files into a folder `place`, which then has all of them; after an error it does not exist. A folder that exists is left
/// as it is: the report came twice.
fn lay_out_checkpoint(folder: &Path, place: &Path, files: &[wire::FileRef]) -> std::io::Result<()> {
    if place.exists() {
        return Ok(());
    }
    let invalid = || Error::from(ErrorKind::InvalidInput);
    let part = place.with_extension("part");
    let _ = std::fs::remove_dir_all(&part);
    std::fs::create_dir_all(&part)?;
    for wire::FileRef { path, hash } in files {
        if !wire::is_relative_path(path) || !wire::is_hash(hash) {
            return Err(invalid());
        }
        let target = part.join(path);
        std::fs::create_dir_all(target.parent().ok_or_else(invalid)?)?;
        std::fs::hard_link(folder.join(checkpoint_name(hash)), target)?;
    }
    std::fs::rename(&part, place)?;
    for wire::FileRef { hash, .. } in files {
        // Of two files with the same content, the second finds nothing to remove.
        let _ = std::fs::remove_file(folder.join(checkpoint_name(hash)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_of_outputs_fail_the_attempt_and_touch_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let hash = "0".repeat(64);
        std::fs::write(folder.path().join(&hash), "content").unwrap();
        let lay = |file: &str, hash: &str| {
            let artifact = wire::UploadedFile { output: "model".into(), file: file.into(), hash: hash.into() };
            lay_out_outputs(folder.path(), &[artifact])
        };
        for file in ["../../escaped", "/etc/passwd", "..", "", "a\0b"] {
            assert!(lay(file, &hash).unwrap_err().contains("not a file name"), "{file:?}");
        }
        assert!(lay("model.bin", "../../../etc/passwd").is_err());
        assert!(lay("model.bin", &"1".repeat(64)).unwrap_err().contains("did not upload"));
        let files = lay("model.bin", &hash).unwrap();
        assert_eq!(std::fs::read_to_string(&files[0].1).unwrap(), "content");
        assert!(files[0].1.ends_with("output-0/model.bin"));
    }

    #[test]
    fn a_checkpoint_with_a_hostile_path_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let hash = "0".repeat(64);
        std::fs::write(folder.path().join(checkpoint_name(&hash)), "state").unwrap();
        std::fs::write(folder.path().join(&hash), "an output").unwrap();
        let place = folder.path().join("checkpoint-1");
        for path in ["../outside", "/outside", "a/../../outside", ""] {
            let file = wire::FileRef { path: path.into(), hash: hash.clone() };
            assert!(lay_out_checkpoint(folder.path(), &place, &[file]).is_err() && !place.exists(), "{path}");
        }
        let file = wire::FileRef { path: "deep/state".into(), hash: hash.clone() };
        // The report may come twice.
        for _ in 0..2 {
            lay_out_checkpoint(folder.path(), &place, std::slice::from_ref(&file)).unwrap();
        }
        assert!(folder.path().join(&hash).exists(), "an output is not moved");
        let listed = list_checkpoint(&place).unwrap();
        assert_eq!(listed.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["deep/state"]);
        assert_eq!(listed[0].hash, blake3::hash(b"state").to_hex().to_string());
    }
}
