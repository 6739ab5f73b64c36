//! Checks names from the other side before they become a part of a path.

/// Whether this is a BLAKE3 hash: 64 lower-case hexadecimal digits.
#[must_use]
pub fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether this is the name of a file without folders.
#[must_use]
pub fn is_file_name(text: &str) -> bool {
    let special = matches!(text, "" | "." | "..");
    !special && text.len() <= 255 && !text.contains(['/', '\\', '\0'])
}

/// Whether this is a path inside a folder: file names with `/` between them.
#[must_use]
pub fn is_relative_path(text: &str) -> bool {
    text.len() <= 1024 && text.split('/').all(is_file_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        for bad in ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\0b", "a\\b", &"x".repeat(256)] {
            assert!(!is_file_name(bad), "{bad}");
        }
        for bad in ["", "/a", "a/", "a//b", "a/../b", "..", "./a"] {
            assert!(!is_relative_path(bad), "{bad}");
        }
        assert!(is_file_name("model.safetensors") && is_relative_path("state/step-7/model.bin"));
        for bad in ["", "0F", &"0F".repeat(32), &"g".repeat(64), &"../".repeat(22)] {
            assert!(!is_hash(bad), "{bad}");
        }
        assert!(is_hash(&"0f".repeat(32)));
    }
}
