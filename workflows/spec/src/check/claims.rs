//! The claims of a file, once its jobs are known.

use std::collections::BTreeSet;

use crate::check::Checker;
use crate::claims::{Claim, ClaimScope, JobView};
use crate::draft::Reader;
use crate::names::{self, Known, Where};
use crate::node::Node;
use crate::source::Span;
use crate::template::{Moment, Template};

impl Checker<'_> {
    /// Fills in and checks the claims.
    pub(super) fn check_claims(&mut self) -> Vec<Claim> {
        let templates = &self.draft.claims;
        let computed: Vec<_> = templates.iter().flat_map(Template::computed).collect();
        let known =
            Known { place: Where::Claims, job: "", params: &self.params, needs: &BTreeSet::new(), jobs: &self.visible };
        let wrong = names::check(&mut Reader { source: self.source, log: self.log }, &computed, &known);
        let cost = templates.iter().map(|template| template.cost(&self.weights, 0)).fold(0, usize::saturating_add);
        let left = self.budget.checked_sub(cost);
        self.budget = left.unwrap_or(self.budget);
        let mut reader = Reader { source: self.source, log: self.log };
        if left.is_none() {
            let hint = "compute less in `claims`".to_owned();
            let span = templates.first().map_or(Span::START, Template::span);
            reader.report(span, "the expressions of the claims take too long", hint);
            return Vec::new();
        }
        let names = self.globals.constants();
        let sound = |template: &&Template| !template.computed().iter().any(|computed| wrong.contains(&computed.span));
        let nodes: Vec<Node> =
            templates.iter().filter(sound).map(|template| reader.fill(template, &names, Moment::Check)).collect();
        let jobs = self.draft.jobs.iter().enumerate().map(|(place, job)| {
            let name = job.name.name.as_str();
            let visible = self.visible.get(name);
            let cells = self.expanded[place].as_ref().map(|(_, places)| {
                places.iter().filter_map(|&task| self.tasks.get(task)).map(|task| &task.matrix).collect()
            });
            let metrics = visible.and_then(|visible| visible.metrics);
            (name, JobView { kind: visible.map_or("", |visible| visible.kind.as_str()), metrics, cells })
        });
        let scope = ClaimScope { jobs: jobs.collect() };
        reader.resolve_claims(&nodes, &scope)
    }
}
