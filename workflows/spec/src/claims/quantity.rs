//! Claimed values with units: `46x`, `370 ms`, `22,089 tokens/s`, `60%`.

/// Conversions from a unit in a claim to the unit of a metric: `(written, metric's unit, factor)`.
const UNITS: &[(&str, &str, f64)] = &[
    ("%", "", 0.01),
    ("x", "", 1.0),
    ("×", "", 1.0),
    ("tokens/s", "/s", 1.0),
    ("h", "s", 3_600.0),
    ("min", "s", 60.0),
    ("ms", "s", 1e-3),
    ("us", "s", 1e-6),
    ("µs", "s", 1e-6),
    ("ns", "s", 1e-9),
    ("kB", "B", 1e3),
    ("MB", "B", 1e6),
    ("GB", "B", 1e9),
    ("KiB", "B", 1024.0),
    ("MiB", "B", 1_048_576.0),
    ("GiB", "B", 1_073_741_824.0),
];

/// Splits a quantity into its number and its unit; `None` if it does not start with a number.
pub(super) fn split_quantity(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(at, c)| {
            let exponent = matches!(c, 'e' | 'E')
                && text[..*at].ends_with(|c: char| c.is_ascii_digit())
                && text[at + 1..].trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit());
            let sign = matches!(c, '+' | '-') && (*at == 0 || text[..*at].ends_with(['e', 'E']));
            !(c.is_ascii_digit() || matches!(c, '.' | ',' | '_') || exponent || sign)
        })
        .map_or(text.len(), |(at, _)| at);
    let number: f64 = text[..end].replace([',', '_'], "").parse().ok()?;
    number.is_finite().then_some((number, text[end..].trim()))
}

/// A number in a metric's unit; `Err` with the accepted units.
pub(super) fn convert_unit(number: f64, unit: &str, wanted: &str) -> Result<f64, Vec<String>> {
    if unit.is_empty() || unit == wanted {
        return Ok(number);
    }
    let found = UNITS.iter().find(|(written, base, _)| *written == unit && *base == wanted);
    found.map(|(_, _, factor)| number * factor).ok_or_else(|| {
        let fitting = UNITS.iter().filter(|(_, base, _)| *base == wanted).map(|(written, ..)| (*written).to_owned());
        fitting.chain((!wanted.is_empty()).then(|| wanted.to_owned())).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_split_and_converted() {
        for (text, number, unit) in [
            ("46x", 46.0, "x"),
            ("370 ms", 370.0, "ms"),
            ("22,089 tokens/s", 22_089.0, "tokens/s"),
            ("-1.5e-3", -1.5e-3, ""),
            ("2 exa", 2.0, "exa"),
            ("60%", 60.0, "%"),
        ] {
            assert_eq!(split_quantity(text), Some((number, unit)), "{text}");
        }
        for text in ["", "fast", "1.2.3", "-", "e5"] {
            assert_eq!(split_quantity(text), None, "{text}");
        }
        assert_eq!(convert_unit(370.0, "ms", "s"), Ok(0.37));
        assert_eq!(convert_unit(2.0, "GiB", "B"), Ok(2_147_483_648.0));
        assert_eq!(convert_unit(60.0, "%", ""), Ok(0.6));
        assert!(convert_unit(3.0, "ms", "B").is_err_and(|fitting| fitting.contains(&"MiB".to_owned())));
        assert!(convert_unit(3.0, "ms", "").is_err());
    }
}
