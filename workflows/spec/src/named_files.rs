//! The local files that a workflow names before it runs: they are uploaded with a workflow that runs on another machine.

use serde_json::Value;

use crate::files::{LocalFile, local_files};
use crate::plugins::insert_plugins;
use crate::resolve::Needed;
use crate::results::{Conclusion, Finished};
use crate::template::Moment;
use crate::workflow::Workflow;

impl Workflow {
    /// The local files that a task's config names, except those whose path depends on results of other tasks.
    #[must_use]
    pub fn named_files(&self, task: usize) -> Vec<LocalFile> {
        let Some((found, template)) = self.tasks.get(task).zip(self.template_of(task)) else { return Vec::new() };
        // Expressions over missing results remain unknown; all others are filled in.
        let finished = |_: usize| Some(Finished::without_result(Conclusion::Success));
        let needed = Needed::new(self, found, &finished);
        let Ok(scope) = needed.scope(&template.with.computed()) else { return Vec::new() };
        let mut errors = Vec::new();
        let node = template.with.fill(&minijinja::Value::from(scope), Moment::Resolve, &mut errors);
        let mut config = node.to_value(&Value::Null);
        let mut files = local_files(&template.kind.schema, &config, self.folder_of_task(task));
        files.extend(insert_plugins(&template.kind.schema, &mut config, self.plugins()));
        files
    }
}
