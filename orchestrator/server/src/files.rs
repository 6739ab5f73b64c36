//! The local files that a config names. Each is checked, a folder in a list is replaced by the files inside it, and each path by the
//! hash of its content.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};

use assay_data::Walk;
use assay_environment::PythonDescription;
use assay_spec::{ArtifactRef, LocalFile, ResolvedStep};

/// The most files that one config may name.
const MOST_FILES: usize = 10_000;
/// Files and folders that are not part of a program: leftovers of tools, and stores of results.
const LEFT_OUT: [&str; 5] = [".assay", ".git", ".venv", "__pycache__", "node_modules"];

/// The files of a config, with each folder of a list replaced by the files inside it, in the order of their paths.
///
/// # Errors
/// If a file is larger than it may be, a path leads out of the workflow file's folder where the program would not find it, a
/// folder cannot be read, or there are too many files. The message names the key and the path.
pub fn expand_files(files: &[LocalFile]) -> Result<Vec<LocalFile>, String> {
    let mut expanded = Vec::new();
    let mut seen = BTreeSet::new();
    for file in files {
        let Some(element) = &file.element else {
            refuse_large(file)?;
            expanded.push(file.clone());
            continue;
        };
        let inside =
            Path::new(element).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside {
            return Err(format!(
                "`{}`: `{element}` leads out of the folder of the workflow file; move it there, or name a folder above by a link",
                file.key
            ));
        }
        add_files(file, &normalized(element), &mut |found| {
            if seen.insert(found.element.clone()) {
                expanded.push(found);
            }
            match seen.len() {
                ..=MOST_FILES => Ok(()),
                _ => Err(format!(
                    "`{}` names more than {MOST_FILES} files; name the folders that the program needs",
                    file.key
                )),
            }
        })?;
    }
    Ok(expanded)
}

/// `./a//b/` as `a/b`; the empty text for the folder itself.
fn normalized(element: &str) -> String {
    let parts = Path::new(element).components().filter(|part| *part != Component::CurDir);
    parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The files of a program, without leftovers of tools. Links are followed: a link is how a workflow names a folder above its own.
const PROGRAM: Walk = Walk { leaves_out: is_left_by_tools, follows_links: true };

fn is_left_by_tools(name: &str) -> bool {
    LEFT_OUT.contains(&name) || name.ends_with(".pyc")
}

/// Calls `add` with the file that an element of a list names, or with each file below the folder that it names.
fn add_files(
    listed: &LocalFile,
    element: &str,
    add: &mut dyn FnMut(LocalFile) -> Result<(), String>,
) -> Result<(), String> {
    let mut add_file = |element: String, path: PathBuf, bytes: u64| {
        let file = LocalFile { element: Some(element), path, ..listed.clone() };
        match size_problem(&file, bytes) {
            None => add(file),
            Some(message) => Err(message),
        }
    };
    let found = read_metadata(listed)?;
    if found.is_file() {
        return add_file(element.to_owned(), listed.path.clone(), found.len());
    }
    let mut added = Ok(());
    let below = if element.is_empty() { String::new() } else { format!("{element}/") };
    let walked = PROGRAM.visit_files(&listed.path, &mut |file| {
        added = add_file(format!("{below}{}", file.name), file.path, file.bytes);
        if added.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    walked.map_err(|error| format!("`{}`: {}; {}", listed.key, error.message, error.hint))?;
    added
}

fn read_metadata(file: &LocalFile) -> Result<fs::Metadata, String> {
    let cannot = |why: String| format!("`{}`: cannot read `{}`: {why}", file.key, file.path.display());
    let found = fs::metadata(&file.path).map_err(|error| cannot(error.to_string()))?;
    if found.is_file() || found.is_dir() { Ok(found) } else { Err(cannot("it is neither a file nor a folder".into())) }
}

/// Refuses a file or folder that is larger than it may be, before it is stored. The size of a folder is that of the files that the
/// store would hold.
fn refuse_large(file: &LocalFile) -> Result<(), String> {
    let found = read_metadata(file)?;
    let bytes = match found.is_dir() {
        true => {
            let files = Walk::DATASET.find_files(&file.path);
            let files = files.map_err(|error| format!("`{}`: {}; {}", file.key, error.message, error.hint))?;
            files.iter().map(|file| file.bytes).sum()
        }
        false => found.len(),
    };
    size_problem(file, bytes).map_or(Ok(()), Err)
}

/// Why a file or folder with this number of bytes is refused; none if it is small enough.
fn size_problem(file: &LocalFile, bytes: u64) -> Option<String> {
    let most = file.most.filter(|most| bytes > *most)?;
    let (key, path) = (&file.key, file.path.display());
    Some(format!("`{key}`: `{path}` has {bytes} bytes, which is more than {most}; use a part of it"))
}

/// Replaces the path of every local file of a config by its content. `content_of` receives the path and the name of a file and returns
/// the hash of its content; it may also store it.
///
/// # Errors
/// As [`expand_files`], and what `content_of` returns.
pub async fn pin_files<F, E>(step: &mut ResolvedStep, content_of: impl Fn(PathBuf, String) -> F) -> Result<(), String>
where
    F: Future<Output = Result<ArtifactRef, E>>,
    E: std::fmt::Display,
{
    let mut contents = Vec::new();
    let mut descriptions = Descriptions::default();
    for file in expand_files(&step.files)? {
        let name = file.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let path = descriptions.content_path(&file)?;
        let artifact = content_of(path, name).await.map_err(|error| format!("`{}`: {error}", file.key))?;
        contents.push((file, artifact));
    }
    step.pin_all(&contents);
    Ok(())
}

/// Files with the descriptions of interpreters, which are removed with this value.
#[derive(Default)]
pub struct Descriptions {
    folder: Option<tempfile::TempDir>,
    count: usize,
}

impl Descriptions {
    /// The path of the file whose content is part of the cache key. For an interpreter this is a new file with its description, and for any
    /// other file the file itself. On a server, an interpreter's file already contains the submitted description.
    ///
    /// # Errors
    /// If the interpreter cannot be described. The message names the key and the path.
    pub fn content_path(&mut self, file: &LocalFile) -> Result<PathBuf, String> {
        if !file.is_python || is_description(&file.path) {
            return Ok(file.path.clone());
        }
        let described = PythonDescription::read_once(&file.path);
        let described = described.map_err(|error| format!("`{}`: {error}; {}", file.key, error.hint))?;
        let cannot = |error: std::io::Error| format!("`{}`: cannot write the description: {error}", file.key);
        let folder = match self.folder.take() {
            Some(folder) => self.folder.insert(folder),
            None => self.folder.insert(tempfile::tempdir().map_err(cannot)?),
        };
        self.count += 1;
        let path = folder.path().join(format!("{}.json", self.count));
        fs::write(&path, described.to_json()).map_err(cannot)?;
        Ok(path)
    }
}

fn is_description(path: &Path) -> bool {
    let mut start = [0];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"{"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_counts_by_its_description() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        fs::write(&python, "#!/bin/sh\necho '{\"version\": \"cpython 3.13.5\", \"packages\": [\"a==1\"]}'\n").unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let file = LocalFile { element: None, is_python: true, ..listed(folder.path(), "python") };
        let mut descriptions = Descriptions::default();
        let path = descriptions.content_path(&file).unwrap();
        let description = PythonDescription::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!((description.interpreter, description.packages), (python, vec!["a==1".to_owned()]));
        // A submitted description is not run.
        let submitted = LocalFile { path: path.clone(), ..file.clone() };
        assert_eq!(descriptions.content_path(&submitted).unwrap(), path);
        let none = LocalFile { element: None, is_python: true, ..listed(folder.path(), "none") };
        let error = descriptions.content_path(&none).unwrap_err();
        assert!(error.contains("`files`") && error.contains("is not a Python interpreter"), "{error}");
    }

    fn listed(folder: &Path, element: &str) -> LocalFile {
        LocalFile {
            key: "files".into(),
            element: Some(element.into()),
            path: folder.join(element),
            most: None,
            is_python: false,
        }
    }

    #[test]
    fn a_folder_stands_for_its_files_without_what_tools_leave() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["train.py", "lib/b.py", "lib/a.py", "lib/__pycache__/a.pyc", "lib/.git/x", "lib/deep/c.txt"] {
            fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
            fs::write(folder.path().join(file), file).unwrap();
        }
        let elements = |listing: &[&str]| {
            let files: Vec<LocalFile> = listing.iter().map(|element| listed(folder.path(), element)).collect();
            let found = expand_files(&files)?;
            Ok::<_, String>(found.into_iter().filter_map(|file| file.element).collect::<Vec<_>>())
        };
        assert_eq!(
            elements(&["./lib/", "train.py", "lib/a.py"]).unwrap(),
            ["lib/a.py", "lib/b.py", "lib/deep/c.txt", "train.py"]
        );
        assert_eq!(elements(&["."]).unwrap(), ["lib/a.py", "lib/b.py", "lib/deep/c.txt", "train.py"]);
        assert!(elements(&["../x"]).unwrap_err().contains("leads out of the folder"));
        assert!(elements(&["/etc/passwd"]).unwrap_err().contains("leads out of the folder"));
        assert!(elements(&["missing.py"]).unwrap_err().contains("missing.py"));
        std::os::unix::fs::symlink(folder.path(), folder.path().join("lib/loop")).unwrap();
        assert!(elements(&["lib"]).unwrap_err().contains("deep"));
    }

    #[test]
    fn hidden_files_of_a_dataset_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join(".git")).unwrap();
        fs::write(data.join("a.txt"), "four").unwrap();
        fs::write(data.join(".git/history"), "a very long one").unwrap();
        let file = |most| LocalFile { element: None, most: Some(most), ..listed(folder.path(), "data") };
        assert_eq!(expand_files(&[file(4)]).unwrap(), [file(4)]);
        assert!(expand_files(&[file(3)]).unwrap_err().contains("has 4 bytes, which is more than 3"));
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "four").unwrap();
        let file = |most| LocalFile { element: None, most: Some(most), ..listed(folder.path(), "a.txt") };
        assert_eq!(expand_files(&[file(4)]).unwrap(), [file(4)]);
        assert!(expand_files(&[file(3)]).unwrap_err().contains("more than 3"));
    }
}
