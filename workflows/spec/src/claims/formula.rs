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
//! `-` and `/` without spaces around them belong to the name that they stand in: `test/accuracy` is a metric, `a.x / 2` a quotient.

use super::lexer::{Kind, Token, tokens};
use super::model::{Axis, CellRef, Check, Comparison, Formula, FormulaError, Function, Operator, Selection};
use crate::suggest;

/// The longest text, in characters, and how deep it may be nested.
const LONGEST: usize = 4_000;
const DEEPEST: usize = 32;

const FUNCTIONS: &[&str] =
    &["mean", "ratio", "difference", "exponent", "crossover", "sum", "min", "max", "abs", "round", "log"];

/// Reads a formula, or a comparison of two.
///
/// # Errors
/// With the place of what cannot be read.
pub fn parse(text: &str) -> Result<Check, FormulaError> {
    if text.chars().count() > LONGEST {
        let message = format!("a formula has at most {LONGEST} characters");
        return Err(FormulaError { at: 0, length: 1, message, hint: Some("split it into several claims".into()) });
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let left = parser.sum()?;
    let comparison = match parser.comparison() {
        Some(comparison) => Some((comparison, parser.sum()?)),
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

    fn accepts(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek().kind, Kind::Symbol(next) if next == symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), FormulaError> {
        if self.accepts(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> FormulaError {
        let token = self.peek();
        let message = format!("{} stands where {wanted} was expected", token.describe());
        FormulaError { at: token.at, length: token.length, message, hint: None }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let known = [
            ("<", Comparison::Less),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            (">=", Comparison::GreaterOrEqual),
            ("==", Comparison::Equal),
            ("!=", Comparison::Different),
        ];
        let (_, comparison) = known.into_iter().find(|(symbol, _)| self.accepts(symbol))?;
        Some(comparison)
    }

    /// Operands of one precedence, from left to right.
    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        operand: fn(&mut Self) -> Result<Formula, FormulaError>,
    ) -> Result<Formula, FormulaError> {
        let mut left = operand(self)?;
        while let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.accepts(symbol)) {
            left = Formula::Operation(*operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Formula, FormulaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            let message = format!("a formula is nested at most {DEEPEST} deep");
            return Err(FormulaError { message, ..self.unexpected("less") });
        }
        let sum = self.chain(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::product);
        self.depth -= 1;
        sum
    }

    fn product(&mut self) -> Result<Formula, FormulaError> {
        self.chain(&[("*", Operator::Multiply), ("/", Operator::Divide)], Self::power)
    }

    fn power(&mut self) -> Result<Formula, FormulaError> {
        let base = self.atom()?;
        if !self.accepts("^") {
            return Ok(base);
        }
        Ok(Formula::Operation(Operator::Power, Box::new(base), Box::new(self.atom()?)))
    }

    fn atom(&mut self) -> Result<Formula, FormulaError> {
        if self.accepts("(") {
            let inner = self.sum()?;
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
                    self.call(&name, &token)
                } else {
                    Ok(Formula::Cells(self.cells(name, &token)?))
                }
            }
            _ => Err(self.unexpected("a number, a function or `JOB.METRIC`")),
        }
    }

    fn cells(&mut self, job: String, at: &Token) -> Result<CellRef, FormulaError> {
        let mut selected: Vec<Selection> = Vec::new();
        if self.accepts("[") {
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
                if !self.accepts(",") {
                    break;
                }
            }
            self.expect("]")?;
        }
        let dotted = self.accepts(".");
        let metric = self.advance();
        let Kind::Metric(name) = metric.kind else {
            self.at -= 1 + usize::from(dotted);
            let mut error = self.unexpected(&format!("`.METRIC` behind `{job}`"));
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

    fn call(&mut self, name: &str, at: &Token) -> Result<Formula, FormulaError> {
        self.expect("(")?;
        let (mut arguments, mut over) = (Vec::new(), None);
        loop {
            let is_over = matches!(&self.peek().kind, Kind::Name(name) if name == "over")
                && matches!(self.tokens.get(self.at + 1), Some(Token { kind: Kind::Symbol(":"), .. }));
            if is_over {
                self.at += 2;
                over = Some(self.axis()?);
                break;
            }
            arguments.push(self.sum()?);
            if !self.accepts(",") {
                break;
            }
        }
        self.expect(")")?;
        finish_call(name, at, arguments, over)
    }

    fn axis(&mut self) -> Result<Axis, FormulaError> {
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

/// A call with its arguments, if they are those of the function.
fn finish_call(name: &str, at: &Token, arguments: Vec<Formula>, over: Option<Axis>) -> Result<Formula, FormulaError> {
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
        assert_eq!(refused("mean(a.x"), (8, "the end stands where `)` was expected".into()));
        assert_eq!(refused("meen(a.x)").0, 0);
        assert_eq!(parse("meen(a.x)").unwrap_err().hint, Some("did you mean `mean`?".into()));
        assert_eq!(
            refused("a.x > > 2"),
            (6, "`>` stands where a number, a function or `JOB.METRIC` was expected".into())
        );
        assert_eq!(refused("a[states].x").0, 8);
        assert_eq!(refused("a[s=1, s=2].x"), (7, "the axis `s` is selected twice".into()));
        assert_eq!(refused("a + 1"), (2, "`+` stands where `.METRIC` behind `a` was expected".into()));
        assert_eq!(refused("1 ? 2").0, 2);
        assert_eq!(refused("a.'x").1, "the text that ' begins has no end");
        assert_eq!(refused("50x").0, 2);
        assert_eq!(refused("ratio(a.x)").1, "`ratio` is written `ratio(A, B)`");
        assert_eq!(refused("mean(a.x, over: y)").1, "`mean` has no `over`");
        assert_eq!(refused("").0, 0);
        for deep in ["(".repeat(5_000), "(".repeat(100), "-".repeat(60), "a[".repeat(60), "2^".repeat(60)] {
            refused(&deep);
        }
    }
}
