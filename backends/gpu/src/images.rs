//! Compiled kernels on disk, by everything that they depend on.

use std::path::{Path, PathBuf};

use crate::driver::{DeviceProperties, DriverError};

/// Bytes of the hash before an image on disk, which tells a whole file from a torn one.
const HASH: usize = 32;

/// What is to be compiled.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The text, which includes its headers by name.
    pub source: &'a str,
    /// Names and texts.
    pub headers: &'a [(&'a str, &'a str)],
    /// In the compiler's words.
    pub options: &'a [&'a str],
}

impl Source<'_> {
    /// The hash of all that the image for a device depends on.
    #[must_use]
    pub fn cache_key(&self, properties: &DeviceProperties) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut part = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        part("1");
        part(&format!(
            "{} {:?} {} {}",
            properties.name, properties.architecture, properties.driver, properties.compiler
        ));
        self.options.iter().for_each(|option| part(option));
        part("headers");
        self.headers.iter().for_each(|(name, text)| {
            part(name);
            part(text);
        });
        part(self.source);
        hasher.finalize().to_hex()[..40].to_owned()
    }

    /// The image of this key: from the folder, if it is there and whole, or else made, and kept there.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn load_or_compile(
        &self,
        key: &str,
        folder: Option<&Path>,
        make: impl FnOnce() -> Result<Vec<u8>, DriverError>,
    ) -> Result<Vec<u8>, DriverError> {
        let file = folder.map(|folder| folder.join(format!("{key}.image")));
        if let Some(image) = file.as_deref().and_then(read_image) {
            return Ok(image);
        }
        let image = make()?;
        if let Some(file) = file {
            write_image(&file, &image);
        }
        Ok(image)
    }
}

/// The image in a file, if its hash says that it is whole.
fn read_image(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (hash, image) = bytes.split_at_checked(HASH)?;
    (blake3::hash(image).as_bytes() == hash).then(|| image.to_vec())
}

/// Keeps an image. Where that fails, the next process compiles again.
fn write_image(file: &Path, image: &[u8]) {
    let mut bytes = blake3::hash(image).as_bytes().to_vec();
    bytes.extend(image);
    let own = PathBuf::from(format!("{}.{}", file.display(), std::process::id()));
    let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    // Written elsewhere and renamed, so that no other process reads half of it.
    if folder.is_ok() && std::fs::write(&own, bytes).is_ok() && std::fs::rename(&own, file).is_err() {
        let _ = std::fs::remove_file(&own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Architecture;

    #[test]
    fn what_is_kept_is_found_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("assay-gpu-images-{}", std::process::id()));
        let file = folder.join("deep").join("a.image");
        write_image(&file, b"code");
        assert_eq!(read_image(&file).as_deref(), Some(&b"code"[..]));
        let mut torn = std::fs::read(&file).unwrap();
        torn.pop();
        std::fs::write(&file, torn).unwrap();
        assert_eq!(read_image(&file), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_key_depends_on_every_part() {
        let properties = DeviceProperties {
            name: "a".into(),
            architecture: Architecture::Cuda(9, 0),
            driver: "CUDA 13.0".into(),
            compiler: "NVRTC 13.0".into(),
            wave: 32,
            multiprocessors: 1,
            shared: 1,
            memory: 1,
        };
        let base = Source { source: "a", headers: &[("h", "b")], options: &["-DX"] };
        let newer = DeviceProperties { compiler: "NVRTC 13.1".into(), ..properties.clone() };
        let keys = [
            base.cache_key(&properties),
            base.cache_key(&newer),
            Source { source: "b", ..base }.cache_key(&properties),
            Source { headers: &[("h", "c")], ..base }.cache_key(&properties),
            Source { headers: &[], ..base }.cache_key(&properties),
            Source { options: &["-DY"], ..base }.cache_key(&properties),
        ];
        let different: std::collections::BTreeSet<&String> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
