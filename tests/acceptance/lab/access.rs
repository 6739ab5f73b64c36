//! Tokens, and addresses of servers.

use std::process::Output;

use super::liar::request;
use super::processes::Server;
use crate::support::Home;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A command with a token.
fn ask(url: &str, token: &str, args: &[&str]) -> Output {
    let home = Home::new();
    home.command(args).args(["--server", url]).env("ASSAY_TOKEN", token).output().expect("assay starts")
}

fn create_token(server: &Server, scope: &str) -> String {
    let output = server.home.output(&["token", "create", "--scope", scope]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn any_address_but_a_loopback_one_asks_for_a_token_of_the_right_scope() {
    let server = Server::start_on("0.0.0.0:0", &[]);
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    let [read, submit, worker] = ["read", "submit", "worker"].map(|scope| create_token(&server, scope));
    for wrong in ["", "wrong", &"0".repeat(64)] {
        let refused = ask(&url, wrong, &["workers"]);
        assert!(!refused.status.success() && text(&refused.stderr).contains("token"), "{}", text(&refused.stderr));
    }
    // An MLflow client reads its token from another variable.
    for (path, variable) in [("/api/2.0/mlflow/runs/get", "MLFLOW_TRACKING_TOKEN"), ("/api/v1/workers", "ASSAY_TOKEN")]
    {
        let answer = request(&url, &format!("GET {path}"), b"");
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains(&format!("set {variable} to it")), "{answer}");
    }
    let flow = crate::support::fixture("tiny.yaml");
    for token in [&read, &submit, &worker] {
        assert!(ask(&url, token, &["workers"]).status.success());
    }
    let refused = ask(&url, &read, &["submit", &flow]);
    assert!(text(&refused.stderr).contains("scope `read` does not allow this"), "{}", text(&refused.stderr));
    let refused = ask(&url, &submit, &["worker", "--cache", &server.home.store().join("w").display().to_string()]);
    assert!(text(&refused.stderr).contains("403"), "{}", text(&refused.stderr));
    assert!(ask(&url, &submit, &["submit", &flow]).status.success());
    // The store has no token in plain text, and a revoked token is refused.
    let listed = text(&server.home.output(&["token", "list"]).stdout);
    assert!(!listed.contains(&read) && listed.contains("worker"), "{listed}");
    assert!(server.home.output(&["token", "revoke", "1"]).status.success());
    assert!(!ask(&url, &read, &["workers"]).status.success());
    assert!(ask(&url, &submit, &["workers"]).status.success());
}

#[test]
fn a_worker_with_an_invalid_address_ends_with_an_error() {
    for wrong in ["http://127.0.0.1:99999", "ftp://lab", "http://"] {
        let refused = ask(wrong, "", &["worker"]);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains("http://"), "{wrong}: {said}");
    }
}
