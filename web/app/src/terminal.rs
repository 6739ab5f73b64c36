//! What a person reads: written so that a terminal or pipe that is gone stops nothing, and commands that can be copied.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use jiff::Timestamp;

/// Writes a line on standard error. `eprintln!` would panic where nobody reads it any more.
pub fn print_line(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A text as one word of a POSIX shell: as it stands where that is possible, else in single quotes.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => Cow::Borrowed(text),
        false if text.chars().any(char::is_control) => {
            // A control character would reach the terminal; `$'..'` is understood by bash, zsh, ksh and POSIX 2024.
            let escaped = text.chars().map(|c| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if c.is_control() => c.to_string().bytes().map(|byte| format!("\\{byte:03o}")).collect(),
                c => c.to_string(),
            });
            Cow::Owned(format!("$'{}'", escaped.collect::<String>()))
        }
        false => Cow::Owned(format!("'{}'", text.replace('\'', "'\\''"))),
    }
}

/// An `assay` command on the store of this command, to be copied into a shell.
pub fn command_line(home: &Path, words: &[&str]) -> String {
    let mut command = "assay".to_owned();
    for word in words {
        command.push(' ');
        command.push_str(&shell_word(word));
    }
    if home != Path::new(".assay") {
        command.push_str(" --home ");
        command.push_str(&shell_word(&home.to_string_lossy()));
    }
    command
}

/// A time in milliseconds since 1970, as RFC 3339 has it, in UTC: `2026-03-01 12:34:56.789Z`. Later than the year 9999, it is the last
/// time of that year.
pub fn format_time(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_of_the_gregorian_calendar() {
        for (millis, expected) in [
            (0, "1970-01-01 00:00:00.000Z"),
            (951_782_399_999, "2000-02-28 23:59:59.999Z"),
            (951_868_800_000, "2000-03-01 00:00:00.000Z"),
            (1_709_210_096_789, "2024-02-29 12:34:56.789Z"),
            (4_107_542_399_000, "2100-02-28 23:59:59.000Z"),
            (u64::MAX, "9999-12-30 22:00:00.999Z"),
        ] {
            assert_eq!(format_time(millis), expected);
        }
    }

    #[test]
    fn suggested_commands_are_what_a_shell_reads_back() {
        let here = Path::new(".assay");
        assert_eq!(command_line(here, &["logs", "3", "train"]), "assay logs 3 train");
        let address = "train[tag=it's \"$x\"]#2";
        for home in [".assay", "results/a b", "/tmp/it's", "a\nb\tc"] {
            let line = command_line(Path::new(home), &["logs", "3", address]).replacen("assay", "printf '%s\\0'", 1);
            let output = std::process::Command::new("bash").args(["-c", &line]).output().expect("bash runs");
            let words: Vec<String> = String::from_utf8_lossy(&output.stdout).split('\0').map(str::to_owned).collect();
            let expected = match home {
                ".assay" => vec!["logs", "3", address, ""],
                other => vec!["logs", "3", address, "--home", other, ""],
            };
            assert_eq!(words, expected, "{line}");
            assert!(!line.contains(['\n', '\t']));
        }
    }
}
