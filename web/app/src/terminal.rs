//! What a person reads: written so that a terminal or pipe that is gone stops nothing, and commands that can be copied.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

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

/// A moment in milliseconds since 1970, as RFC 3339 has it, in UTC: `2026-03-01 12:34:56.789Z`. The civil date is computed as in
/// Howard Hinnant's `chrono-Compatible Low-Level Date Algorithms`.
pub fn format_time(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Counted from March, so that the leap day is the last of a year.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year_of_era + 400 * era + next;
    let (hours, minutes) = (rest / 3_600_000, rest / 60_000 % 60);
    let (seconds, millis) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
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
