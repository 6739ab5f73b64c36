//! axe-core, which finds violations of accessibility rules in a page.
//!
//! It is not part of this repository (MPL 2.0): `AXE_CORE` names its `axe.min.js`, or `npm pack` fetches it once.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::webdriver::Browser;

const VERSION: &str = "4.10.3";
/// BLAKE3 of its `axe.min.js`.
const HASH: &str = "a3036ebd965e778aa2f253a311008bcd427e059e24750494fbb353303cfe625b";

/// The script.
pub fn load_axe() -> String {
    if let Ok(path) = std::env::var("AXE_CORE") {
        return std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read AXE_CORE `{path}`: {error}"));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("axe-core-{VERSION}"));
    let script = folder.join("package/axe.min.js");
    if !script.exists() {
        fetch(&folder);
    }
    let text = std::fs::read_to_string(&script).unwrap();
    assert_eq!(blake3::hash(text.as_bytes()).to_hex().as_str(), HASH, "{} was changed", script.display());
    text
}

fn fetch(folder: &Path) {
    // Tests that start at once do not disturb each other.
    let own: PathBuf = folder.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(&own).unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(&own).output();
        let hint = "install npm, or set AXE_CORE to the axe.min.js of axe-core";
        let output = output.unwrap_or_else(|error| panic!("cannot start `{program}`: {error}; {hint}"));
        assert!(output.status.success(), "{program} {args:?}: {}; {hint}", String::from_utf8_lossy(&output.stderr));
    };
    run("npm", &["pack", &format!("axe-core@{VERSION}")]);
    run("tar", &["xzf", &format!("axe-core-{VERSION}.tgz"), "package/axe.min.js"]);
    if std::fs::rename(&own, folder).is_err() {
        // Another process was faster.
        std::fs::remove_dir_all(&own).unwrap();
    }
}

/// The serious and critical violations in the page: rule, and the elements.
pub fn find_violations(browser: &Browser, axe: &str) -> Vec<String> {
    browser.run(axe);
    let found = browser.run(
        "return axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations
            .filter(({impact}) => impact === 'serious' || impact === 'critical')
            .map(({id, nodes}) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(' | ')}`))",
    );
    found.as_array().unwrap().iter().map(|line| Value::as_str(line).unwrap_or_default().to_owned()).collect()
}
