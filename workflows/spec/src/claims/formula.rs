//! The language of `check` and `arithmetic`, read by recursive descent:
//!
//! ```text
//! check      = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
//! sum        = product { ("+" | "-") product }
//! product    = power { ("*" | "/") power }
//! power      = atom [ "^" atom ]
//! atom       = NUMBER | "-" NUMBER | "(" sum ")" | FUNCTION "(" arguments ")" | cells
//! cells      = JOB [ "[" AXIS "=" VALUE { "," AXIS "=" VALUE } "]" ] "." METRIC
//! arguments  = sum { "," sum } [ "," "over" ":" ( AXIS | "*" ) ]
//! ```
//!
//! `-` and `/` without spaces around them are part of a name: `test/accuracy` is a metric, `a.x / 2` a quotient.

use super::lexer::{Kind, Token, tokenize};
use super::model::{Axis, CellRef, Check, Comparison, Formula, FormulaError, Function, Operator, Selection};
use crate::suggest;

/// The limits of a formula: characters, nesting depth, and operators. Each operator makes the formula's tree deeper, and
/// trees are visited recursively.
const LONGEST: usize = 4_000;
const DEEPEST: usize = 32;
const MOST_OPERATORS: usize = 500;

const FUNCTIONS: &[&str] =
    &["mean", "ratio", "difference", "exponent", "crossover", "sum", "min", "max", "abs", "round", "log"];

/// Reads a formula, or a comparison of two.
///
/// # Errors
/// With the position of the first unreadable part.
pub fn parse(text: &str) -> Result<Check, FormulaError> {
    if text.chars().count() > LONGEST {
        let message = format!("a formula has at most {LONGEST} characters");
        return Err(FormulaError { at: 0, length: 1, message, hint: Some("split it into several claims".into()) });
    }
    let tokens = tokenize(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0, operators: 0 };
    let left = parser.parse_sum()?;
    let comparison = match parser.parse_comparison() {
        Some(comparison) => Some((comparison, parser.parse_sum()?)),
        None => None,
    };
    match parser.peek().kind {
        Kind::End => Ok(Check { text: text.trim().to_owned(), left, comparison }),
        _ => Err(parser.unexpected("the end of the formula")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    operators: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        // The last token is the end, and is never passed.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek().kind, Kind::Symbol(next) if next == symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), FormulaError> {
        if self.accept(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> FormulaError {
        let token = self.peek();
        let message = format!("expected {wanted}, found {}", token.describe());
        FormulaError { at: token.at, length: token.length, message, hint: None }
    }

    fn parse_comparison(&mut self) -> Option<Comparison> {
        let known = [
            ("<", Comparison::Less),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            (">=", Comparison::GreaterOrEqual),
            ("==", Comparison::Equal),
            ("!=", Comparison::Different),
        ];
        let (_, comparison) = known.into_iter().find(|(symbol, _)| self.accept(symbol))?;
        Some(comparison)
    }

    /// Operands of one precedence, from left to right.
    fn parse_chain(
        &mut self,
        operators: &[(&str, Operator)],
        operand: fn(&mut Self) -> Result<Formula, FormulaError>,
    ) -> Result<Formula, FormulaError> {
        let mut left = operand(self)?;
        while let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.accept(symbol)) {
            self.operators += 1;
            if self.operators > MOST_OPERATORS {
                let message = format!("a formula has at most {MOST_OPERATORS} operators");
                let hint = Some("for example `sum(1, 2, 3)` instead of `1 + 2 + 3`".to_owned());
                return Err(FormulaError { message, hint, ..self.unexpected("less") });
            }
            left = Formula::Operation(*operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn parse_sum(&mut self) -> Result<Formula, FormulaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            let message = format!("a formula is nested at most {DEEPEST} deep");
            return Err(FormulaError { message, ..self.unexpected("less") });
        }
        let sum = self.parse_chain(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::parse_product);
        self.depth -= 1;
        sum
    }

    fn parse_product(&mut self) -> Result<Formula, FormulaError> {
        self.parse_chain(&[("*", Operator::Multiply), ("/", Operator::Divide)], Self::parse_power)
    }

    fn parse_power(&mut self) -> Result<Formula, FormulaError> {
        let base = self.parse_atom()?;
        if !self.accept("^") {
            return Ok(base);
        }
        Ok(Formula::Operation(Operator::Power, Box::new(base), Box::new(self.parse_atom()?)))
    }

    fn parse_atom(&mut self) -> Result<Formula, FormulaError> {
        if self.accept("(") {
            let inner = self.parse_sum()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if matches!(self.peek().kind, Kind::Symbol("-")) {
            self.at += 1;
            let Kind::Number(number) = self.peek().kind else { return Err(self.unexpected("a number")) };
            self.at += 1;
            return Ok(Formula::Number(-number));
        }
        match self.peek().kind.clone() {
            Kind::Number(number) => {
                self.at += 1;
                Ok(Formula::Number(number))
            }
            Kind::Name(name) => {
                let token = self.advance();
                if matches!(self.peek().kind, Kind::Symbol("(")) {
                    self.parse_call(&name, &token)
                } else {
                    Ok(Formula::Cells(self.parse_cells(name, &token)?))
                }
            }
            _ => Err(self.unexpected("a number, a function or `JOB.METRIC`")),
        }
    }

    fn parse_cells(&mut self, job: String, at: &Token) -> Result<CellRef, FormulaError> {
        let mut selected: Vec<Selection> = Vec::new();
        if self.accept("[") {
            loop {
                let axis = self.advance();
                let Kind::Name(name) = &axis.kind else {
                    self.at -= 1;
                    return Err(self.unexpected("the name of an axis"));
                };
                self.expect("=")?;
                let value = self.advance();
                let Kind::Value(text) = value.kind else {
                    self.at -= 1;
                    return Err(self.unexpected("a value"));
                };
                if selected.iter().any(|known| known.axis == *name) {
                    let message = format!("the axis `{name}` is selected twice");
                    return Err(FormulaError { at: axis.at, length: axis.length, message, hint: None });
                }
                selected.push(Selection {
                    axis: name.clone(),
                    value: text,
                    axis_at: (axis.at, axis.length),
                    value_at: (value.at, value.length),
                });
                if !self.accept(",") {
                    break;
                }
            }
            self.expect("]")?;
        }
        let dotted = self.accept(".");
        let metric = self.advance();
        let Kind::Metric(name) = metric.kind else {
            self.at -= 1 + usize::from(dotted);
            let mut error = self.unexpected(&format!("`.METRIC` after `{job}`"));
            if selected.is_empty() && suggest::nearest(&job, FUNCTIONS.iter().copied()).is_some() {
                error.hint = Some(format!("functions are {}", suggest::list(FUNCTIONS)));
            } else {
                error.hint = Some(format!("for example `{job}.test/accuracy`"));
            }
            return Err(error);
        };
        let (job_at, metric_at) = ((at.at, at.length), (metric.at, metric.length));
        Ok(CellRef { job, selected, metric: name, job_at, metric_at })
    }

    fn parse_call(&mut self, name: &str, at: &Token) -> Result<Formula, FormulaError> {
        self.expect("(")?;
        let (mut arguments, mut over) = (Vec::new(), None);
        loop {
            let is_over = matches!(&self.peek().kind, Kind::Name(name) if name == "over")
                && matches!(self.tokens.get(self.at + 1), Some(Token { kind: Kind::Symbol(":"), .. }));
            if is_over {
                self.at += 2;
                over = Some(self.parse_axis()?);
                break;
            }
            arguments.push(self.parse_sum()?);
            if !self.accept(",") {
                break;
            }
        }
        self.expect(")")?;
        build_call(name, at, arguments, over)
    }

    fn parse_axis(&mut self) -> Result<Axis, FormulaError> {
        let token = self.advance();
        match token.kind {
            Kind::Name(name) => Ok(Axis::Matrix(name)),
            Kind::Symbol("*") => Ok(Axis::MetricPart),
            _ => {
                self.at -= 1;
                Err(self.unexpected("the name of an axis, or `*`"))
            }
        }
    }
}

/// A call with its arguments, if the function accepts them.
fn build_call(name: &str, at: &Token, arguments: Vec<Formula>, over: Option<Axis>) -> Result<Formula, FormulaError> {
    let wrong = |message: String, hint: Option<String>| FormulaError { at: at.at, length: at.length, message, hint };
    let usage = |usage: &str| Err(wrong(format!("`{name}` is written `{usage}`"), None));
    let count = arguments.len();
    let mut rest = arguments.clone().into_iter();
    let (first, second) = (rest.next(), rest.next());
    if over.is_some() && !matches!(name, "exponent" | "crossover") {
        return Err(wrong(format!("`{name}` has no `over`"), None));
    }
    Ok(match (name, first, second, over) {
        ("mean", Some(Formula::Cells(cells)), None, None) => Formula::Cells(cells),
        ("mean", Some(Formula::Exponent(..) | Formula::Crossover(..)), None, None) => {
            return usage("mean(JOB[AXIS=VALUE].METRIC)");
        }
        ("ratio", Some(a), Some(b), None) if count == 2 => Formula::Ratio(Box::new(a), Box::new(b)),
        ("ratio", ..) => return usage("ratio(A, B)"),
        ("difference", Some(a), Some(b), None) if count == 2 => {
            Formula::Operation(Operator::Subtract, Box::new(a), Box::new(b))
        }
        ("difference", ..) => return usage("difference(A, B)"),
        ("exponent", Some(Formula::Cells(cells)), None, Some(over)) => Formula::Exponent(cells, over),
        ("exponent", ..) => return usage("exponent(JOB.METRIC, over: AXIS)"),
        ("crossover", Some(Formula::Cells(a)), Some(Formula::Cells(b)), Some(over)) if count == 2 => {
            Formula::Crossover(a, b, over)
        }
        ("crossover", ..) => return usage("crossover(JOB.METRIC, JOB.METRIC, over: AXIS)"),
        ("mean", ..) => Formula::Call(Function::Mean, arguments),
        ("sum", ..) => Formula::Call(Function::Sum, arguments),
        ("min", ..) => Formula::Call(Function::Min, arguments),
        ("max", ..) => Formula::Call(Function::Max, arguments),
        ("abs", Some(_), None, _) => Formula::Call(Function::Abs, arguments),
        ("log", Some(_), None, _) => Formula::Call(Function::Log, arguments),
        ("round", Some(_), Some(Formula::Number(_)), _) if count == 2 => Formula::Call(Function::Round, arguments),
        ("abs" | "log", ..) => return usage(&format!("{name}(A)")),
        ("round", ..) => return usage("round(A, DIGITS)"),
        _ => {
            let hint = suggest::nearest(name, FUNCTIONS.iter().copied()).map_or_else(
                || format!("functions are {}", suggest::list(FUNCTIONS)),
                |near| format!("did you mean `{near}`?"),
            );
            return Err(wrong(format!("unknown function `{name}`"), Some(hint)));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let error = parse(text).unwrap_err();
        (error.at, error.message)
    }

    #[test]
    fn names_keep_their_slashes_and_hyphens() {
        let check = parse("ratio(bench.latency/f32/64/median, my-job[a=x/y, b='1, 2'].test/loss) > 1.5").unwrap();
        let cells: Vec<String> = check.cells().iter().map(ToString::to_string).collect();
        assert_eq!(cells, ["bench.latency/f32/64/median", "my-job[a=x/y, b=1, 2].test/loss"]);
        assert!(matches!(check.comparison, Some((Comparison::Greater, Formula::Number(limit))) if limit == 1.5));
        let quotient = parse("a.x / b.y - 2").unwrap();
        assert_eq!(quotient.cells().len(), 2);
        assert!(matches!(quotient.left, Formula::Operation(Operator::Subtract, ..)));
        let starred = parse("exponent(bench.latency/f32/*/median, over: *)").unwrap();
        assert!(
            matches!(&starred.left, Formula::Exponent(cells, Axis::MetricPart) if cells.metric == "latency/f32/*/median")
        );
        assert!(matches!(&parse("2 * a.x").unwrap().left, Formula::Operation(Operator::Multiply, ..)));
        assert!(
            matches!(parse("a.'others load'").unwrap().left, Formula::Cells(CellRef { metric, .. }) if metric == "others load")
        );
    }

    #[test]
    fn precedence_is_that_of_arithmetic() {
        let text = |text: &str| format!("{:?}", parse(text).unwrap().left);
        assert_eq!(text("1 + 2 * 3"), text("1 + (2 * 3)"));
        assert_eq!(text("8 / 4 / 2"), text("(8 / 4) / 2"));
        assert_eq!(text("2 * 3 ^ 2"), text("2 * (3 ^ 2)"));
        assert_eq!(text("-5%"), text("-0.05"));
    }

    #[test]
    fn errors_point_at_their_column() {
        assert_eq!(refused("mean(a.x"), (8, "expected `)`, found the end".into()));
        assert_eq!(refused("meen(a.x)").0, 0);
        assert_eq!(parse("meen(a.x)").unwrap_err().hint, Some("did you mean `mean`?".into()));
        assert_eq!(refused("a.x > > 2"), (6, "expected a number, a function or `JOB.METRIC`, found `>`".into()));
        assert_eq!(refused("a[states].x").0, 8);
        assert_eq!(refused("a[s=1, s=2].x"), (7, "the axis `s` is selected twice".into()));
        assert_eq!(refused("a + 1"), (2, "expected `.METRIC` after `a`, found `+`".into()));
        assert_eq!(refused("1 ? 2").0, 2);
        assert_eq!(refused("a.'x").1, "the quote ' is not closed");
        assert_eq!(refused("50x").0, 2);
        assert_eq!(refused("ratio(a.x)").1, "`ratio` is written `ratio(A, B)`");
        assert_eq!(refused("mean(a.x, over: y)").1, "`mean` has no `over`");
        assert_eq!(refused("").0, 0);
        assert_eq!(refused(&["1"; 502].join("+")).1, "a formula has at most 500 operators");
        assert!(parse(&["1"; 501].join("+")).is_ok());
        for deep in ["(".repeat(5_000), "(".repeat(100), "-".repeat(60), "a[".repeat(60), "2^".repeat(60)] {
            refused(&deep);
        }
    }
}
