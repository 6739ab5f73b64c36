//! The local files that a config names: each is checked, and a folder in a list stands for the files inside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};

use assay_spec::LocalFile;

/// The most files that one config may name.
const MOST_FILES: usize = 10_000;
/// How deep folders may lie in one another.
const DEEPEST: usize = 32;
/// Names that are no part of a program: what tools leave, and stores of results.
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
        add_files(file, &normalized(element), &file.path, 0, &mut |found| {
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

fn add_files(
    listed: &LocalFile,
    element: &str,
    path: &Path,
    depth: usize,
    add: &mut dyn FnMut(LocalFile) -> Result<(), String>,
) -> Result<(), String> {
    let cannot = |why: String| format!("`{}`: cannot read `{}`: {why}", listed.key, path.display());
    let data = fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
    if data.is_file() {
        let file = LocalFile { element: Some(element.to_owned()), path: path.to_owned(), ..listed.clone() };
        refuse_large(&file)?;
        return add(file);
    }
    if !data.is_dir() {
        return Err(cannot("it is neither a file nor a folder".into()));
    }
    if depth == DEEPEST {
        return Err(cannot(format!("folders lie more than {DEEPEST} deep; perhaps a link leads back")));
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut names = Vec::new();
    for entry in entries.map_err(|error| cannot(error.to_string()))? {
        match entry.file_name().into_string() {
            Ok(name) if LEFT_OUT.contains(&name.as_str()) || name.ends_with(".pyc") => {}
            Ok(name) => names.push(name),
            Err(name) => return Err(cannot(format!("the name {name:?} is not UTF-8"))),
        }
    }
    names.sort();
    for name in names {
        let inner = if element.is_empty() { name.clone() } else { format!("{element}/{name}") };
        add_files(listed, &inner, &path.join(&name), depth + 1, add)?;
    }
    Ok(())
}

/// Refuses a file or folder that is larger than it may be, before it is stored.
fn refuse_large(file: &LocalFile) -> Result<(), String> {
    let Some(most) = file.most else { return Ok(()) };
    let bytes = total_bytes(&file.path, most);
    if bytes <= most {
        return Ok(());
    }
    let (key, path) = (&file.key, file.path.display());
    Err(match file.path.is_dir() {
        true => format!("`{key}`: the files of `{path}` have more than {most} bytes; take a part of them"),
        false => format!("`{key}`: `{path}` has {bytes} bytes, which is more than {most}; take a part of it"),
    })
}

/// The size of a file, or the sum of the sizes of the files in a folder. The sum ends as soon as it exceeds `most`. What cannot
/// be read counts nothing: reading it fails later, with its reason.
fn total_bytes(path: &Path, most: u64) -> u64 {
    let Ok(found) = fs::metadata(path) else { return 0 };
    if found.is_file() {
        return found.len();
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // A link to a folder may lead in a circle; the store refuses it.
        if bytes <= most && !(entry.path().is_symlink() && entry.path().is_dir()) {
            bytes += total_bytes(&entry.path(), most);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(folder: &Path, element: &str) -> LocalFile {
        LocalFile { key: "files".into(), element: Some(element.into()), path: folder.join(element), most: None }
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
    fn a_file_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "four").unwrap();
        let file = |most| LocalFile { element: None, most: Some(most), ..listed(folder.path(), "a.txt") };
        assert_eq!(expand_files(&[file(4)]).unwrap(), [file(4)]);
        assert!(expand_files(&[file(3)]).unwrap_err().contains("more than 3"));
    }
}
