//! The pages of a server with worker nodes.

use super::liar::{request, request_with};
use super::processes::Server;

const WORKFLOW: &str =
    "name: written\njobs:\n  data:\n    uses: prepare\n    with: {dataset: copy, train: 20, valid: 5, test: 5}\n";

fn form(text: &str) -> Vec<u8> {
    let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("source={encoded}").into_bytes()
}

#[test]
fn a_workflow_that_is_written_in_the_editor_runs() {
    let server = Server::start(&[]);
    let page = request(&server.url, "GET /editor", b"");
    assert!(page.contains("formaction=\"/editor/submit\""), "{page}");
    assert!(page.contains("first: 5 tasks in 2 jobs"), "the example can run: {page}");
    let foreign = request_with(&server.url, "POST /editor/submit", "Origin: http://evil.test\r\n", &form(WORKFLOW));
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let wrong = request(&server.url, "POST /editor/submit", &form("name: x\njobs: {a: {uses: nothing}}\n"));
    assert!(wrong.starts_with("HTTP/1.1 422") && wrong.contains("data-line=\"2\""), "{wrong}");
    let own = format!("Origin: {}\r\n", server.url);
    let answer = request_with(&server.url, "POST /editor/submit", &own, &form(WORKFLOW));
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("location: /runs/1\r\n"), "{answer}");

    // Without a worker, the task waits, and the page says why.
    let waiting = crate::support::wait_for("the task to be ready", || {
        let page = request(&server.url, "GET /machine", b"");
        page.contains("no worker is connected; start one with").then_some(page)
    });
    assert!(waiting.contains("No worker is connected") && waiting.contains("1 waiting"), "{waiting}");
    let _worker = server.worker("node", &[]);
    server.wait_for_workers(1);
    assert_eq!(server.finished("1").state(), "succeeded");
    let page = request(&server.url, "GET /machine", b"");
    assert!(page.contains(">node</th>") && page.contains("Nothing waits"), "{page}");
    assert!(request(&server.url, "GET /notes", b"").contains("A server with worker nodes shows no notes"));
}
