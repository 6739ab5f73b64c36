//! A filter as SQL. A store may have thousands of runs with dozens of tasks each: the database selects, and only the rows of a page are read.

use sea_orm::Value;

use super::condition::{
    Condition, Matching, NumberField, NumberTest, Order, Places, RunFilter, TextField, TextTest, ValueKey, ValueTest,
};
use super::literal::Literal;

/// SQL with the values of its `?`, in their order.
#[derive(Debug, Default)]
pub(crate) struct Sql {
    pub text: String,
    pub values: Vec<Value>,
}

impl Sql {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn bind(&mut self, value: impl Into<Value>) {
        self.text.push('?');
        self.values.push(value.into());
    }

    /// Parts with a word between them, in parentheses; `nothing` if there is none.
    fn join<T>(&mut self, parts: &[T], between: &str, nothing: &str, mut write: impl FnMut(&mut Sql, &T)) {
        self.push("(");
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                self.push(between);
            }
            write(self, part);
        }
        self.push(if parts.is_empty() { nothing } else { "" });
        self.push(")");
    }
}

/// What a filter must know about the present.
pub(crate) struct Present<'a> {
    /// The runs in the state `running` whose process no longer exists.
    pub dead: &'a [i64],
    /// Milliseconds since 1970.
    pub now: i64,
}

impl RunFilter {
    /// Whether the answer depends on which processes are alive.
    pub(crate) fn asks_for_states(&self) -> bool {
        self.conditions.iter().any(|condition| matches!(condition, Condition::State { .. }))
    }

    /// The numbers of the runs that match, the newest first.
    pub(crate) fn select(&self, present: &Present<'_>, limit: u64, offset: u64) -> Sql {
        let mut sql = Sql::default();
        sql.push("select r.id as id from runs r where ");
        let (of_tasks, of_runs): (Vec<_>, Vec<_>) =
            self.conditions.iter().partition(|condition| matches!(condition, Condition::Value(..)));
        // Cheap conditions first: SQLite evaluates them in this order.
        sql.join(&of_runs, " and ", "1", |sql, condition| write_condition(sql, condition, present));
        let values: Vec<(&ValueKey, &ValueTest)> = of_tasks
            .into_iter()
            .filter_map(|condition| match condition {
                Condition::Value(key, test) => Some((key, test)),
                _ => None,
            })
            .collect();
        if !values.is_empty() {
            sql.push(" and ");
            write_values(&mut sql, &values);
        }
        sql.push(" order by r.id desc limit ");
        sql.bind(i64::try_from(limit).unwrap_or(i64::MAX));
        sql.push(" offset ");
        sql.bind(i64::try_from(offset).unwrap_or(i64::MAX));
        sql
    }
}

fn write_condition(sql: &mut Sql, condition: &Condition, present: &Present<'_>) {
    match condition {
        Condition::State { any_of, negated } => {
            sql.push("case when r.id in ");
            sql.join(present.dead, ", ", "", |sql, run| sql.bind(*run));
            sql.push(" then 'interrupted' else r.state end");
            sql.push(if *negated { " not in " } else { " in " });
            sql.join(any_of, ", ", "", |sql, state| sql.bind(state.name()));
        }
        Condition::Text(field, test) => {
            let column = match field {
                TextField::Name => "r.name",
                TextField::File => "r.file",
                TextField::Note => "r.note",
                TextField::Commit => "coalesce(r.git_commit, '')",
            };
            sql.push(if test.negated { "not " } else { "" });
            write_text_test(sql, column, test);
        }
        Condition::Tag(test) => {
            sql.push(if test.negated { "not " } else { "" });
            sql.push("exists (select 1 from json_each(r.tags) j where ");
            write_text_test(sql, "j.value", test);
            sql.push(")");
        }
        Condition::Number(field, test) => write_number_test(sql, *field, test, present.now),
        // Written with those of all values together.
        Condition::Value(..) => sql.push("1"),
    }
}

fn write_text_test(sql: &mut Sql, column: &str, test: &TextTest) {
    sql.join(&test.any_of, " or ", "0", |sql, wanted| match test.matching {
        Matching::Whole => {
            sql.push(column);
            sql.push(" = ");
            sql.bind(wanted.as_str());
        }
        Matching::Part | Matching::Start => {
            sql.push(&format!("instr(lower({column}), lower("));
            sql.bind(wanted.as_str());
            sql.push(if test.matching == Matching::Start { ")) = 1" } else { ")) > 0" });
        }
    });
}

fn write_order(sql: &mut Sql, order: Order, bound: f64) {
    sql.push(match order {
        Order::Below => " < ",
        Order::AtMost => " <= ",
        Order::Above => " > ",
        Order::AtLeast => " >= ",
    });
    sql.bind(bound);
}

fn write_number_test(sql: &mut Sql, field: NumberField, test: &NumberTest, now: i64) {
    match field {
        NumberField::Run => sql.push("r.id"),
        NumberField::Tasks => sql.push("(select count(*) from tasks t where t.run = r.id)"),
        NumberField::Failed => sql.push("(select count(*) from tasks t where t.run = r.id and t.state = 'failed')"),
        NumberField::Cached => sql.push("(select count(*) from tasks t where t.run = r.id and t.state = 'cached')"),
        NumberField::Took => {
            sql.push("(coalesce(r.ended_at, ");
            sql.bind(now);
            sql.push(") - r.created_at) / 1000.0");
        }
        NumberField::Age => {
            sql.push("(");
            sql.bind(now);
            sql.push(" - r.created_at) / 1000.0");
        }
        NumberField::Started => sql.push("r.created_at"),
        NumberField::Ended => sql.push("r.ended_at"),
    }
    match test {
        NumberTest::OneOf { any_of, negated } => {
            sql.push(if *negated { " not in " } else { " in " });
            sql.join(any_of, ", ", "", |sql, number| sql.bind(*number));
        }
        NumberTest::Ordered(order, bound) => write_order(sql, *order, *bound),
    }
}

/// Conditions on values: they must hold for the tasks of one row of the sweep, that is, for those with the same matrix values and
/// replicate. The axis `job` names the job that a task is derived from, and distinguishes no rows.
fn write_values(sql: &mut Sql, values: &[(&ValueKey, &ValueTest)]) {
    let (of_run, of_tasks): (Vec<_>, Vec<_>) = values.iter().partition(|(key, _)| key.places == Places::Params);
    sql.join(&of_run, " and ", "1", |sql, (key, test)| write_member(sql, "r.params", &[&key.name], test));
    // Each condition alone: a run that fails one of them need not be grouped.
    for (key, test) in &of_tasks {
        sql.push(" and (");
        write_params_value(sql, key, test);
        sql.push("exists (select 1 from tasks t where t.run = r.id and ");
        write_task_value(sql, key, test);
        sql.push("))");
    }
    if of_tasks.len() > 1 {
        sql.push(
            " and exists (select 1 from tasks t where t.run = r.id \
             group by json_remove(t.matrix, '$.job'), t.replicate having ",
        );
        sql.join(&of_tasks, " and ", "1", |sql, (key, test)| {
            sql.push("(");
            write_params_value(sql, key, test);
            sql.push("max(");
            write_task_value(sql, key, test);
            sql.push("))");
        });
        sql.push(")");
    }
}

/// Whether a parameter of the run passes the test, with `or` behind it; nothing if the condition is not about parameters.
fn write_params_value(sql: &mut Sql, key: &ValueKey, test: &ValueTest) {
    if key.places == Places::Anywhere {
        write_member(sql, "r.params", &[&key.name], test);
        sql.push(" or ");
    }
}

/// Whether a matrix value or a metric of the task `t` passes the test.
fn write_task_value(sql: &mut Sql, key: &ValueKey, test: &ValueTest) {
    let own = [&key.name];
    let metrics: Vec<&String> = std::iter::once(&key.name).chain(&key.headlines).collect();
    sql.push("(");
    if key.places != Places::Metrics {
        write_member(sql, "t.matrix", &own, test);
    }
    if key.places == Places::Anywhere {
        sql.push(" or ");
    }
    if key.places != Places::Matrix {
        write_member(sql, "t.metrics", &metrics, test);
    }
    sql.push(")");
}

/// Whether a member of a JSON object with one of these names passes the test.
fn write_member(sql: &mut Sql, column: &str, names: &[&String], test: &ValueTest) {
    sql.push("(");
    // A search for the name as JSON writes it costs a tenth of parsing the object.
    sql.join(names, " or ", "0", |sql, name| {
        sql.push(&format!("instr({column}, "));
        sql.bind(serde_json::Value::from(name.as_str()).to_string());
        sql.push(") > 0");
    });
    sql.push(&format!(" and exists (select 1 from json_each({column}) j where j.key in "));
    sql.join(names, ", ", "", |sql, name| sql.bind(name.as_str()));
    sql.push(" and ");
    match test {
        ValueTest::OneOf { any_of, negated } => {
            sql.push(if *negated { "not " } else { "" });
            sql.join(any_of, " or ", "0", write_equal);
        }
        ValueTest::Contains { any_of, negated } => {
            sql.push(if *negated { "not " } else { "" });
            sql.join(any_of, " or ", "0", |sql, part| {
                sql.push("instr(lower(case j.type when 'true' then 'true' when 'false' then 'false' else coalesce(j.value, '') end), lower(");
                sql.bind(part.as_str());
                sql.push(")) > 0");
            });
        }
        ValueTest::Ordered(order, bound) => {
            sql.push("j.type in ('integer', 'real') and j.value");
            write_order(sql, *order, *bound);
        }
    }
    sql.push("))");
}

fn write_equal(sql: &mut Sql, wanted: &Literal) {
    sql.push("(j.type = 'text' and j.value = ");
    sql.bind(wanted.text.as_str());
    sql.push(" or j.type in ('true', 'false', 'null') and j.type = ");
    sql.bind(wanted.text.as_str());
    if let Some(number) = wanted.number {
        sql.push(" or j.type in ('integer', 'real') and j.value = ");
        sql.bind(number);
    }
    sql.push(")");
}
