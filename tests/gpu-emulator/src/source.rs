//! Converts a preprocessed kernel source to C++.

use std::fmt::Write as _;

const GLOBAL: &str = "__global__";
const BOUNDS: &str = "__launch_bounds__";

/// A kernel's name, and the maximum threads of its block as in the source.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    name: String,
    threads: Option<String>,
}

/// The source with `__global__`, `__launch_bounds__` and `extern __shared__` replaced, and an entry for each kernel.
pub(crate) fn translated(source: &str) -> Result<String, String> {
    let (mut text, kernels) = without_words(&dynamic_shared(source)?)?;
    for Found { name, threads } in kernels {
        let threads = threads.unwrap_or_else(|| "0".into());
        let _ = write!(
            text,
            "\nextern \"C\" __attribute__((visibility(\"default\"))) const assay_emulator::Kernel assay_kernel_{name} = \
             assay_emulator::describe<&{name}>(&{name}, {threads});"
        );
    }
    text.push('\n');
    Ok(text)
}

/// Removes the keywords from kernel declarations, and records the kernels.
fn without_words(source: &str) -> Result<(String, Vec<Found>), String> {
    let (mut text, mut kernels, mut rest) = (String::with_capacity(source.len()), Vec::<Found>::new(), source);
    while let Some(at) = rest.find(GLOBAL) {
        let (before, after) = (&rest[..at], &rest[at + GLOBAL.len()..]);
        let (head, threads, length) = head(after)?;
        let name: String = head.trim_end().chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let name: String = name.chars().rev().collect();
        if name.is_empty() {
            return Err(format!("`__global__` is followed by no function: `{}`", head.trim()));
        }
        text.push_str(before);
        text.push_str("__attribute__((noinline)) ");
        text.push_str(&head);
        if !kernels.iter().any(|kernel| kernel.name == name) {
            kernels.push(Found { name, threads });
        }
        rest = &after[length..];
    }
    text.push_str(rest);
    Ok((text, kernels))
}

/// The declaration of a function up to its parameters' parenthesis, without its launch bounds; and its length in bytes.
fn head(text: &str) -> Result<(String, Option<String>, usize), String> {
    let (mut head, mut threads, mut at) = (String::new(), None, 0);
    loop {
        let open = text[at..].find('(').ok_or("`__global__` is followed by no function")? + at;
        let word = text[at..open].trim_end();
        if let Some(before) = word.strip_suffix(BOUNDS) {
            let close = closing(text, open).ok_or("`__launch_bounds__` has no closing parenthesis")?;
            let arguments = &text[open + 1..close];
            threads = Some(arguments.split(',').next().unwrap_or_default().trim().to_owned());
            head.push_str(before);
            at = close + 1;
        } else {
            head.push_str(&text[at..open]);
            return Ok((head, threads, open));
        }
    }
}

/// The index of the parenthesis that closes the one at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + at);
        }
    }
    None
}

/// Converts `extern static T name[];`, which is the expansion of `extern __shared__ T name[];`, to a pointer.
fn dynamic_shared(source: &str) -> Result<String, String> {
    let (mut text, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(at) = rest.find("extern static ") {
        let declaration = &rest[at + "extern static ".len()..];
        let end = declaration.find(';').ok_or("`extern __shared__` has no end")?;
        let words = declaration[..end].trim_end();
        let array = words.strip_suffix(']').and_then(|words| words.trim_end().strip_suffix('['));
        let words = array.ok_or("`extern __shared__` declares no array of unknown length")?.trim_end();
        let length = words.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').map(char::len_utf8).sum();
        let (kind, name) = words.split_at(words.len() - usize::min(length, words.len()));
        let kind = without_alignment(kind);
        text.push_str(&rest[..at]);
        let _ = write!(text, "{kind} *const {name} = static_cast<{kind} *>(assay_dynamic_shared())");
        rest = &declaration[end..];
    }
    text.push_str(rest);
    Ok(text)
}

/// A type without `__attribute__((aligned(n)))` or `alignas(n)` before it: the emulator aligns to a page.
fn without_alignment(kind: &str) -> String {
    let mut kind = kind.trim();
    for word in ["__attribute__", "alignas"] {
        if let Some(rest) = kind.strip_prefix(word) {
            let rest = rest.trim_start();
            if let Some(close) = closing(rest, 0) {
                kind = rest[close + 1..].trim();
            }
        }
    }
    kind.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_with_their_bounds() {
        let source =
            "extern \"C\" __global__ void __launch_bounds__(256, 2) add(float* y) {}\n__global__ void sub() {}";
        let (text, kernels) = without_words(source).unwrap();
        assert!(!text.contains("__global__") && !text.contains("bounds"), "{text}");
        assert_eq!(
            kernels,
            [Found { name: "add".into(), threads: Some("256".into()) }, Found { name: "sub".into(), threads: None }]
        );
        assert!(translated(source).unwrap().contains("describe<&add>(&add, 256)"));
    }

    #[test]
    fn dynamic_shared_memory_becomes_a_pointer() {
        for alignment in ["", "__attribute__((aligned(16))) ", "alignas(16) "] {
            let text =
                dynamic_shared(&format!("{{ extern static {alignment}unsigned int tile[]; tile[0] = 1; }}")).unwrap();
            assert_eq!(
                text,
                "{ unsigned int *const tile = static_cast<unsigned int *>(assay_dynamic_shared()); tile[0] = 1; }"
            );
        }
    }

    #[test]
    fn what_is_no_kernel_is_an_error() {
        assert!(translated("__global__ int x;").is_err());
        assert!(translated("extern static float tile;").is_err());
    }
}
