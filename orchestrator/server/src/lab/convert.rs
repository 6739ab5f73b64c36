//! Between the messages of the wire and those inside of this process: hashes on the one side, files on the other.

use std::io::Read;
use std::path::{Path, PathBuf};

use assay_core::AttemptId;
use assay_protocol::{AttemptEvent, AttemptOutcome, Failure, FailureClass};
use assay_wire as wire;
use assay_worker::link::Assignment;

use super::memory::LabBody;

/// The most files of a checkpoint that are sent to another worker.
const MOST_FILES: usize = 1000;

/// Where the files lie that workers brought for an attempt.
pub(super) fn folder_of(uploads: &Path, attempt: AttemptId) -> PathBuf {
    let AttemptId { task, epoch } = attempt;
    uploads.join(format!("{}-{}-{epoch}", task.run, task.task))
}

/// An assignment for a worker that does not share this machine's files.
pub(super) fn assignment_for_wire(assignment: Assignment) -> wire::Assignment {
    let checkpoint = list_checkpoint(&assignment.resume);
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

/// The files that an earlier attempt left. What cannot be read is left out: the attempt then begins anew.
fn list_checkpoint(folder: &Path) -> Vec<wire::FileRef> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let (path, kind) = (format!("{prefix}{name}"), entry.file_type());
            if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                folders.push((entry.path(), format!("{path}/")));
            } else if kind.is_ok_and(|kind| kind.is_file()) && wire::is_relative_path(&path) {
                files.extend(hash_file(&entry.path()).ok().map(|hash| wire::FileRef { path, hash }));
            }
            if files.len() >= MOST_FILES {
                return files;
            }
        }
    }
    files.sort();
    files
}

fn hash_file(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher) = (std::fs::File::open(path)?, blake3::Hasher::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            read => hasher.update(&buffer[..read]),
        };
    }
}

/// What a report says, with its files where the store can take them from. Blocks on files.
pub(super) fn report_body(uploads: &Path, report: wire::AttemptReport) -> LabBody {
    let folder = folder_of(uploads, report.attempt);
    let event = match report.body {
        wire::ReportBody::Queued { why } => AttemptEvent::Queued(why),
        wire::ReportBody::Greeted { hello } => AttemptEvent::Greeted(hello),
        wire::ReportBody::Started => AttemptEvent::Started,
        wire::ReportBody::Progress { progress } => AttemptEvent::Progress(progress),
        wire::ReportBody::Metrics { points } => AttemptEvent::Metrics(points),
        wire::ReportBody::Log { level, text } => AttemptEvent::Log(level, text),
        wire::ReportBody::Checkpoint { files } => {
            let place = folder.join(format!("checkpoint-{}", report.seq));
            // An incomplete one is not put in the place of the one that is there.
            if lay_out(&folder, &place, &files).is_err() {
                let _ = std::fs::remove_dir_all(&place);
            }
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

/// Gives uploaded files their names, each in a folder of its own.
fn lay_out_outputs(folder: &Path, artifacts: &[wire::UploadedFile]) -> Result<Vec<(String, PathBuf)>, String> {
    let mut files = Vec::new();
    for (number, artifact) in artifacts.iter().enumerate() {
        let wire::UploadedFile { output, file, hash } = artifact;
        let shown = assay_spec::printable(output);
        if !wire::is_file_name(file) || !wire::is_hash(hash) {
            let named = assay_spec::printable(file).into_owned();
            return Err(format!(
                "its worker reported the output `{shown}` as the file `{named}`, which is no file name"
            ));
        }
        let place = folder.join(format!("output-{number}"));
        let path = place.join(file);
        // A report that comes twice finds the file there, perhaps while the store reads it.
        let made = std::fs::create_dir_all(&place).and_then(|()| match path.exists() {
            true => Ok(()),
            false => std::fs::hard_link(folder.join(hash), &path),
        });
        made.map_err(|error| format!("its worker reported the output `{shown}`, which it did not upload: {error}"))?;
        files.push((output.clone(), path));
    }
    Ok(files)
}

/// Makes a folder of uploaded files, which are moved there.
fn lay_out(folder: &Path, place: &Path, files: &[wire::FileRef]) -> std::io::Result<()> {
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
    std::fs::create_dir_all(place)?;
    for wire::FileRef { path, hash } in files {
        if !wire::is_relative_path(path) || !wire::is_hash(hash) {
            return Err(invalid());
        }
        let target = place.join(path);
        std::fs::create_dir_all(target.parent().ok_or_else(invalid)?)?;
        std::fs::hard_link(folder.join(hash), target)?;
    }
    for wire::FileRef { hash, .. } in files {
        // A content that two of the files have is gone after the first.
        let _ = std::fs::remove_file(folder.join(hash));
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
            assert!(lay(file, &hash).unwrap_err().contains("no file name"), "{file:?}");
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
        let write = || std::fs::write(folder.path().join(&hash), "state").unwrap();
        write();
        let place = folder.path().join("checkpoint-1");
        for path in ["../outside", "/outside", "a/../../outside", ""] {
            let file = wire::FileRef { path: path.into(), hash: hash.clone() };
            assert!(lay_out(folder.path(), &place, &[file]).is_err(), "{path}");
        }
        let file = wire::FileRef { path: "deep/state".into(), hash: hash.clone() };
        lay_out(folder.path(), &place, &[file]).unwrap();
        let listed = list_checkpoint(&place);
        assert_eq!(listed.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["deep/state"]);
        assert_eq!(listed[0].hash, blake3::hash(b"state").to_hex().to_string());
    }
}
