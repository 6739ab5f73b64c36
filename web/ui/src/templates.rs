//! The templates, embedded in the binary. A page's template lies in the page's folder.

use axum::response::Html;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, Value};
use serde::Serialize;

use crate::error::Failure;
use crate::server::Inner;
use crate::{assets, query};

const TEMPLATES: &[(&str, &str)] = &[
    ("base.html", include_str!("pages/base.html")),
    ("parts.html", include_str!("pages/parts.html")),
    ("runs.html", include_str!("pages/runs/page.html")),
    ("run.html", include_str!("pages/run/page.html")),
    ("graph.html", include_str!("pages/run/graph.html")),
    ("answer.html", include_str!("pages/run/answer.html")),
    ("effects.html", include_str!("pages/run/effects.html")),
    ("results.html", include_str!("pages/run/results.html")),
    ("task.html", include_str!("pages/task/page.html")),
    ("cell.html", include_str!("pages/cell/page.html")),
    ("length.html", include_str!("pages/length/page.html")),
    ("regressions.html", include_str!("pages/regressions/page.html")),
    ("compare.html", include_str!("pages/compare/page.html")),
    ("claims.html", include_str!("pages/claims/page.html")),
    ("workers.html", include_str!("pages/workers/page.html")),
    ("audit.html", include_str!("pages/audit/page.html")),
    ("sweep.html", include_str!("pages/sweep/page.html")),
    ("heat_map.html", include_str!("pages/sweep/heat_map.html")),
    ("interval_plot.html", include_str!("pages/sweep/interval_plot.html")),
    ("api.html", include_str!("pages/api/page.html")),
    ("error.html", include_str!("pages/error/page.html")),
];

/// The templates with what they may call; `has_workers` adds the page of workers to the navigation. Text is escaped (their names end in `.html`), and a name that is not defined is
/// an error.
pub(crate) fn environment(has_workers: bool) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.unwrap_or_default());
    environment.add_function("asset", |name: String| {
        let missing = || minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, format!("no asset `{name}`"));
        assets::address(&name).ok_or_else(missing)
    });
    environment.add_filter("segment", |text: String| query::encode(&text));
    environment.add_filter("ticked", |text: String| Value::from_safe_string(ticked(&text)));
    environment.add_global("version", env!("CARGO_PKG_VERSION"));
    environment.add_global("has_workers", has_workers);
    for (name, source) in TEMPLATES {
        // A template that does not parse is found by the tests; here it would only be missing.
        if let Err(error) = environment.add_template(name, source) {
            eprintln!("template {name}: {error:#}");
        }
    }
    environment
}

/// Renders a page.
pub(crate) fn render(site: &Inner, name: &str, view: impl Serialize) -> Result<Html<String>, Failure> {
    let template = site.templates.get_template(name).map_err(Failure::internal)?;
    template.render(Serde(view)).map(Html).map_err(|error| Failure::internal(format!("{error:#}")))
}

/// Escaped text, with what stands between two backticks as code. A tick without its partner is a tick.
fn ticked(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return HtmlEscape(text).to_string();
    }
    let mark = |(at, part): (usize, &&str)| {
        let text = HtmlEscape(part);
        if at % 2 == 0 { text.to_string() } else { format!("<code>{text}</code>") }
    };
    parts.iter().enumerate().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_code_and_never_markup() {
        assert_eq!(ticked("raise `memory` in `a<b>`"), "raise <code>memory</code> in <code>a&lt;b&gt;</code>");
        assert_eq!(ticked("a ` <b>"), "a ` &lt;b&gt;");
        assert_eq!(ticked(""), "");
    }

    #[test]
    fn every_template_parses() {
        let environment = environment(false);
        for (name, _) in TEMPLATES {
            environment.get_template(name).unwrap();
        }
    }
}
