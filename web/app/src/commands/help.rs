//! `assay help`: the command line, a subcommand, or a step kind.

use std::process::ExitCode;

use assay_spec::{nearest_name, printable};
use clap::Command;

use crate::cli::CommandError;
use crate::reference::describe_kind;

/// The widest that help is printed, where the terminal has more columns.
const WIDEST: usize = 100;

/// Prints the help of a subcommand or step kind, or of both if they share the name. Without a name, prints that of the command line.
///
/// # Errors
/// If neither a subcommand nor a step kind has this name.
pub fn run(mut line: Command, name: Option<&str>) -> Result<ExitCode, CommandError> {
    line.build();
    let help = match name {
        None => Some(line.render_long_help()),
        Some(name) => line.find_subcommand_mut(name).map(Command::render_long_help),
    };
    let name = name.unwrap_or_default();
    let kinds = super::step_kinds();
    let kind = kinds.iter().find(|kind| kind.name == name);
    if let Some(help) = help {
        print_styled(&help)?;
        if kind.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
        super::print_out(&format!("\nThe step kind `{name}`:\n"))?;
    }
    let Some(kind) = kind else {
        let commands = line.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
        let known: Vec<&str> = kinds.iter().map(|kind| kind.name).chain(commands).collect();
        return Err(unknown(name, &known).into());
    };
    super::print_out(&describe_kind(kind, super::terminal_width().min(WIDEST)))?;
    Ok(ExitCode::SUCCESS)
}

/// Help in colours where standard output is a terminal that has them.
fn print_styled(help: &clap::builder::StyledStr) -> Result<(), CommandError> {
    match console::colors_enabled() && console::user_attended() {
        true => super::print_out(help.ansi().to_string().trim_end()),
        false => super::print_out(help.to_string().trim_end()),
    }
}

fn unknown(name: &str, known: &[&str]) -> String {
    let meant = match nearest_name(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are: {}", known.join(", ")),
    };
    format!("there is no step kind or subcommand `{}`; {meant}", printable(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_has_gets_the_nearest_one() {
        let known = ["prepare", "train", "run"];
        assert!(unknown("trian", &known).ends_with("did you mean `train`?"));
        assert!(unknown("zzz", &known).ends_with("there are: prepare, train, run"));
        assert!(!unknown("a\u{1b}b", &known).contains('\u{1b}'));
    }
}
