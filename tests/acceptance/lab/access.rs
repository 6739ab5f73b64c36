//! Tokens, and addresses of servers.

use std::process::Output;

use super::liar::{request, request_with};
use super::processes::Server;
use crate::support::{Home, wait_for};

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

/// The answer to a request with a token.
fn fetch(url: &str, token: &str, path: &str) -> String {
    request_with(url, &format!("GET {path}"), &format!("Authorization: Bearer {token}\r\n"), b"")
}

#[test]
fn a_client_with_too_many_requests_is_refused_and_others_are_not() {
    // One request, and the next one after a quarter of an hour.
    let server = Server::start_on("0.0.0.0:0", &["--max-rate", "0.001"]);
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    let [one, other] = ["read", "read"].map(|scope| create_token(&server, scope));
    assert!(fetch(&url, &one, "/api/v1/workers").starts_with("HTTP/1.1 200"));
    let refused = fetch(&url, &one, "/api/v1/workers");
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: "), "{refused}");
    let refused = fetch(&url, &one, "/api/2.0/mlflow/runs/get");
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("REQUEST_LIMIT_EXCEEDED"), "{refused}");
    assert!(fetch(&url, &other, "/api/v1/workers").starts_with("HTTP/1.1 200"));
    // Requests without a valid token count for their address.
    assert!(fetch(&url, "wrong", "/api/v1/workers").starts_with("HTTP/1.1 401"));
    assert!(fetch(&url, "guess", "/api/v1/workers").starts_with("HTTP/1.1 429"));
    let refused = ask(&url, &one, &["workers"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("429"), "{}", text(&refused.stderr));
}

#[test]
fn the_connection_of_a_worker_counts_as_a_request_in_progress() {
    let mut server = Server::start_on("0.0.0.0:0", &["--max-streams", "1"]);
    server.url = server.url.replace("0.0.0.0", "127.0.0.1");
    let [token, other] = ["worker", "read"].map(|scope| create_token(&server, scope));
    server.environment.push(("ASSAY_TOKEN", token.clone()));
    let mut worker = server.worker("only", &[]);
    let refused = wait_for("the connection of the worker", || {
        let answer = fetch(&server.url, &token, "/api/v1/workers");
        answer.starts_with("HTTP/1.1 429").then_some(answer)
    });
    assert!(refused.contains("retry-after: 1\r\n") && refused.contains("at the same time"), "{refused}");
    assert!(fetch(&server.url, &other, "/api/v1/workers").starts_with("HTTP/1.1 200"));
    worker.process.kill();
    wait_for("the end of the connection", || {
        fetch(&server.url, &token, "/api/v1/workers").starts_with("HTTP/1.1 200").then_some(())
    });
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    // 1,073 bytes.
    let server = Server::start(&["--max-upload", "0.000001"]);
    let put = |size: usize| {
        let content = vec![7; size];
        let hash = blake3::hash(&content).to_hex();
        request(&server.url, &format!("PUT /api/v1/files/{hash}"), &content)
    };
    assert!(put(1000).starts_with("HTTP/1.1 201"));
    let refused = put(2000);
    assert!(refused.starts_with("HTTP/1.1 413") && refused.contains("--max-upload"), "{refused}");
    // A command shows the same reason, although the connection has no room for the whole file.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flow = "name: big\njobs:\n  say:\n    uses: command\n    with: {run: [cat, big.txt], files: [big.txt]}\n";
    std::fs::write(folder.path().join("flow.yaml"), flow).expect("a workflow");
    std::fs::write(folder.path().join("big.txt"), vec![7; 50_000_000]).expect("a file");
    let refused = ask(&server.url, "", &["submit", &folder.path().join("flow.yaml").display().to_string()]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--max-upload"), "{}", text(&refused.stderr));
}

#[test]
fn who_changed_what_is_recorded_and_shown_to_administrators() {
    let server = Server::start_on("0.0.0.0:0", &[]);
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    let [read, submit, admin] = ["read", "submit", "admin"].map(|scope| create_token(&server, scope));
    let flow = crate::support::fixture("tiny.yaml");
    assert!(ask(&url, &submit, &["submit", &flow]).status.success());
    assert!(ask(&url, &submit, &["priority", "1", "7"]).status.success());
    assert!(!ask(&url, &read, &["cancel", "1"]).status.success());
    assert!(ask(&url, &admin, &["cancel", "1"]).status.success());
    // Reading is not recorded, nor is a request without a valid token.
    assert!(ask(&url, &read, &["runs"]).status.success());
    assert!(!ask(&url, "wrong", &["submit", &flow]).status.success());
    let listed = ask(&url, &admin, &["audit", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let actions = listed["actions"].as_array().expect("actions").iter().rev();
    let told: Vec<String> = actions
        .map(|action| {
            format!(
                "{} {} {}",
                action["token"],
                text(action["action"].as_str().unwrap_or("").as_bytes()),
                action["result"]
            )
        })
        .collect();
    let expected = [
        r#"null create token 1 with the scope `read` "done""#.to_owned(),
        r#"null create token 2 with the scope `submit` "done""#.to_owned(),
        r#"null create token 3 with the scope `admin` "done""#.to_owned(),
        format!(r#"2 submit `{flow}` as run 1 "done""#),
        r#"2 change the priority of run 1 to 7 "done""#.to_owned(),
        r#"1 cancel run 1 "refused: 403 Forbidden""#.to_owned(),
        r#"3 cancel run 1 "done""#.to_owned(),
    ];
    assert_eq!(told, expected);
    // The same in the store of the server, and on its page.
    let here = text(&server.home.output(&["audit"]).stdout);
    assert!(here.contains("cancel run 1") && here.contains("127.0.0.1") && here.contains("command line of"), "{here}");
    let page = fetch(&url, &admin, "/audit");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("token 2 (submit)"), "{page}");
    for token in [&read, &submit] {
        assert!(fetch(&url, token, "/audit").starts_with("HTTP/1.1 403"));
        let refused = ask(&url, token, &["audit"]);
        assert!(text(&refused.stderr).contains("does not allow this"), "{}", text(&refused.stderr));
    }
}
