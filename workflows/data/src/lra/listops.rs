//! ListOps as published: `basic_train.tsv`, `basic_val.tsv` and `basic_test.tsv`, each with the header `Source<TAB>Target`.
//!
//! A source is an expression such as `( ( ( [MAX 2 ) 9 ) ] )`. Its parentheses belong to the binary trees of the original task (Nangia
//! and Bowman 2018) and are not tokens of Long Range Arena. Every target is compared with the value of its expression.

use crate::{DataError, Files};

/// The size limit of a file, in bytes.
const MOST_BYTES: u64 = 2 << 30;

/// The words of an expression in the order of their tokens: the token of a digit is the digit.
pub const VOCABULARY: [&str; 15] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]"];
/// The token of the first operator.
const FIRST_OPERATOR: u8 = 10;
/// The token that closes an operator's arguments.
const END: u8 = 14;

/// An expression: its tokens without parentheses, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    /// Operators, digits and closing brackets, as indices of [`VOCABULARY`].
    pub tokens: Vec<u8>,
    /// The published target.
    pub value: u32,
}

/// Reads the splits train, valid and test, and the paths of their files.
///
/// # Errors
/// If a file is missing, or a line is not an expression with its value; the message names the line.
pub fn read_listops(files: &Files) -> Result<([Vec<Expression>; 3], Vec<String>), DataError> {
    let (mut splits, mut used) = ([const { Vec::new() }; 3], Vec::new());
    for (split, name) in splits.iter_mut().zip(["basic_train.tsv", "basic_val.tsv", "basic_test.tsv"]) {
        let name = files.find(&[name])?.to_owned();
        let text = files.read_text(&name, MOST_BYTES)?;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            if at == 0 && line.starts_with("Source") {
                continue;
            }
            let wrong = |what: String| {
                DataError::new(format!("`{name}`, line {}: {what}", at + 1), "give the published files, unchanged")
            };
            split.push(parse(line).map_err(wrong)?);
        }
        if split.is_empty() {
            return Err(DataError::new(format!("`{name}` contains no expression"), "give the published files"));
        }
        used.push(name);
    }
    Ok((splits, used))
}

fn parse(line: &str) -> Result<Expression, String> {
    let (source, target) = line.split_once('\t').ok_or("there is no tab between expression and target")?;
    let value: u32 = target.trim().parse().ok().filter(|value| *value < 10).ok_or_else(|| {
        let shown: String = target.chars().take(20).collect();
        format!("the target `{shown}` is not a digit")
    })?;
    let words = source.split_whitespace().filter(|word| !matches!(*word, "(" | ")"));
    let tokens = words.map(token_of).collect::<Result<Vec<u8>, String>>()?;
    match evaluate(&tokens)? {
        found if found == value => Ok(Expression { tokens, value }),
        found => Err(format!("the expression is {found}, and the target {value}")),
    }
}

fn token_of(word: &str) -> Result<u8, String> {
    let token = VOCABULARY.iter().position(|known| *known == word).and_then(|at| u8::try_from(at).ok());
    token.ok_or_else(|| format!("`{}` is not a word of ListOps", word.chars().take(20).collect::<String>()))
}

/// The value of an expression in Polish notation, such as `[MAX 2 9 ]`.
fn evaluate(tokens: &[u8]) -> Result<u32, String> {
    let mut outermost = Vec::new();
    let mut open: Vec<(u8, Vec<u32>)> = Vec::new();
    for token in tokens {
        let value = match *token {
            END => {
                let (operator, values) = open.pop().ok_or("a `]` too many")?;
                apply(operator, values)?
            }
            digit if digit < FIRST_OPERATOR => u32::from(digit),
            operator => {
                open.push((operator, Vec::new()));
                continue;
            }
        };
        open.last_mut().map_or(&mut outermost, |(_, values)| values).push(value);
    }
    match (outermost.as_slice(), open.is_empty()) {
        ([value], true) => Ok(*value),
        (_, true) => Err("it is not one expression".into()),
        (_, false) => Err("a `]` is missing".into()),
    }
}

fn apply(operator: u8, mut values: Vec<u32>) -> Result<u32, String> {
    let name = VOCABULARY[usize::from(operator)];
    values.sort_unstable();
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return Err(format!("`{name}` has no argument"));
    };
    let count = values.len();
    Ok(match name {
        "[MIN" => *first,
        "[MAX" => *last,
        // The median of an even number of digits is rounded down.
        "[MED" => (values[(count - 1) / 2] + values[count / 2]) / 2,
        _ => values.iter().sum::<u32>() % 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(train: &str) -> Result<[Vec<Expression>; 3], DataError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("basic_train.tsv"), train).unwrap();
        for name in ["basic_val.tsv", "basic_test.tsv"] {
            std::fs::write(folder.path().join(name), "Source\tTarget\n( ( [SM 7 ) 8 ) ]\t5\n").unwrap();
        }
        read_listops(&Files::open(folder.path(), "listops", folder.path())?).map(|(splits, _)| splits)
    }

    #[test]
    fn published_lines_are_read_and_checked() {
        let text = "Source\tTarget\n( ( ( ( [MAX 2 ) 9 ) ( ( ( [MED 1 ) 2 ) ] ) ) ] )\t9\n3\t3\n";
        let [train, _, test] = read(text).unwrap();
        let words: Vec<&str> = train[0].tokens.iter().map(|token| VOCABULARY[usize::from(*token)]).collect();
        assert_eq!(words.join(" "), "[MAX 2 9 [MED 1 2 ] ]");
        assert_eq!((train.len(), train[1].value, test[0].value), (2, 3, 5));
    }

    #[test]
    fn a_bad_line_is_named() {
        let message = |line: &str| read(&format!("Source\tTarget\n1\t1\n{line}\n")).unwrap_err().message;
        let named = |what: &str| format!("`basic_train.tsv`, line 3: {what}");
        assert_eq!(message("( [MIN 2 ) 9 ) ]\t9"), named("the expression is 2, and the target 9"));
        assert_eq!(message("[MIN 2 9 ]"), named("there is no tab between expression and target"));
        assert_eq!(message("[MIN 2 9\t2"), named("a `]` is missing"));
        assert_eq!(message("2 9\t2"), named("it is not one expression"));
        assert_eq!(message("2 ]\t2"), named("a `]` too many"));
        assert_eq!(message("[MIN ]\t2"), named("`[MIN` has no argument"));
        assert_eq!(message("[AVG 2 ]\t2"), named("`[AVG` is not a word of ListOps"));
        assert_eq!(message("[MIN 2 ]\tx"), named("the target `x` is not a digit"));
        assert_eq!(read("").unwrap_err().message, "`basic_train.tsv` contains no expression");
    }
}
