//! A server with TLS. The certificates are made for these tests, and valid for a century.

use std::process::Output;

use super::liar::request;
use super::processes::Server;
use crate::support::{Home, fixture};

fn certificate(name: &str) -> String {
    fixture(&format!("tls/{name}"))
}

fn start(certificate_name: &str) -> Server {
    let files = [format!("{certificate_name}.pem"), format!("{certificate_name}.key")].map(|name| certificate(&name));
    let mut server = Server::start(&["--tls-cert", &files[0], "--tls-key", &files[1]]);
    server.environment.push(("ASSAY_CA", certificate("authority.pem")));
    server
}

/// A command for a server, with an authority or those of the system.
fn ask(url: &str, authority: Option<&str>, args: &[&str]) -> (Output, String) {
    let home = Home::new();
    let mut command = home.command(args);
    command.args(["--server", url]).args(authority.map(|name| format!("--ca={}", certificate(name))));
    let output = command.output().expect("assay starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

#[test]
fn submissions_files_and_workers_use_tls() {
    let server = start("server");
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    let _worker = server.worker("secured", &["--jobs", "2"]);
    server.wait_for_workers(1);
    let run = server.submit("axes.yaml", &[]);
    let ran = server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    assert_eq!(super::outcome(&ran), super::outcome(Home::new().run("axes.yaml", &[]).succeeded()));
    // A name in the certificate, and an authority on the command line.
    let url = server.url.replace("127.0.0.1", "localhost");
    let (output, errors) = ask(&url, Some("authority.pem"), &["show", &run]);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused_with_the_reason() {
    let (server, elsewhere) = (start("server"), start("elsewhere"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().display().to_string();
    let commands: [&[&str]; 2] = [&["workers"], &["worker", "--cache", &cache]];
    for (url, authority, expected) in [
        (&server.url, Some("other-authority.pem"), "is not signed by an authority in"),
        (&server.url, None, "is not signed by an authority that this machine trusts"),
        (&elsewhere.url, Some("authority.pem"), "its certificate is for another name"),
        (&server.url, Some("missing.pem"), "cannot read the certificates in"),
        (&server.url, Some("server.key"), "has no certificate"),
    ] {
        for command in commands {
            let (output, errors) = ask(url, authority, command);
            assert!(!output.status.success() && errors.contains(expected), "{command:?} {authority:?}: {errors}");
        }
    }
    let flow = fixture("tiny.yaml");
    let (output, errors) = ask(&server.url, Some("other-authority.pem"), &["submit", &flow]);
    assert!(!output.status.success() && errors.contains("--ca"), "{errors}");
}

#[test]
fn a_wrong_scheme_is_explained() {
    let (secure, plain) = (start("server"), Server::start(&[]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().display().to_string();
    let without = secure.url.replace("https://", "http://");
    let with = plain.url.replace("http://", "https://");
    let answer = request(&without, "GET /", b"");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");
    let commands: [&[&str]; 2] = [&["workers"], &["worker", "--cache", &cache]];
    for command in commands {
        let (output, errors) = ask(&without, None, command);
        assert!(!output.status.success() && errors.contains("this server uses TLS"), "{command:?}: {errors}");
        let (output, errors) = ask(&with, Some("authority.pem"), command);
        assert!(!output.status.success() && errors.contains("does not use TLS"), "{command:?}: {errors}");
    }
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = [folder.path().join("chain.pem"), folder.path().join("key.pem")];
    let replace = |from: &str| {
        // As a renewal does it: a new file takes the name of the old one.
        for (to, ending) in files.iter().zip(["pem", "key"]) {
            let new = to.with_extension("new");
            std::fs::copy(certificate(&format!("{from}.{ending}")), &new).expect("a copy");
            std::fs::rename(&new, to).expect("a new file");
        }
    };
    replace("elsewhere");
    let [chain, key] = files.each_ref().map(|file| file.display().to_string());
    let server = Server::start(&["--tls-cert", &chain, "--tls-key", &key]);
    let workers = || ask(&server.url, Some("authority.pem"), &["workers"]);
    assert!(workers().1.contains("another name"));
    // The old certificate stays in use while the new one is invalid.
    std::fs::write(&files[0], "half of a file").expect("a file");
    assert!(workers().1.contains("another name"));
    replace("server");
    let (output, errors) = workers();
    assert!(output.status.success(), "{errors}");
}

#[test]
fn a_server_does_not_start_with_files_that_do_not_fit() {
    let (pem, key, other) = (certificate("server.pem"), certificate("server.key"), certificate("elsewhere.key"));
    for (args, expected) in [
        (vec!["--tls-cert", &pem], "--tls-key"),
        (vec!["--tls-key", &key], "--tls-cert"),
        (vec!["--tls-cert", &pem, "--tls-key", &other], "cannot be used"),
        (vec!["--tls-cert", &key, "--tls-key", &key], "has no certificate"),
        (vec!["--tls-cert", &pem, "--tls-key", &pem], "cannot read the private key in"),
        (vec!["--tls-cert", "missing.pem", "--tls-key", &key], "cannot read the certificate in `missing.pem`"),
    ] {
        let output = Home::new().output(&[&["server", "--listen", "127.0.0.1:0"], &args[..]].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(expected), "{args:?}: {errors}");
    }
}
