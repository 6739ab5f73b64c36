//! A network that fails between a server and a worker, in network namespaces of Linux. Without the right to create these, the tests say so
//! and pass.

use std::process::Command;

use super::processes::{Server, Worker};
use super::{outcome, states};
use crate::support::{Home, wait_for};

/// Two hosts with a router between them.
struct Network {
    /// The namespaces of the server, the worker and the router.
    hosts: [String; 3],
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Network {
    /// `None`, with a message, if this machine does not allow it. `number` distinguishes the networks of this process.
    fn create(number: u8) -> Option<Network> {
        let id = std::process::id();
        let network = Network { hosts: ["s", "w", "r"].map(|end| format!("assay-{id}-{number}{end}")) };
        match network.connect(number) {
            Ok(()) => Some(network),
            Err(error) => {
                println!("skipped: network namespaces cannot be created here ({error}); run as root, with iproute2");
                None
            }
        }
    }

    fn connect(&self, number: u8) -> Result<(), String> {
        let [server, worker, router] = &self.hosts;
        self.hosts.iter().try_for_each(|host| ip(&["netns", "add", host]))?;
        for (place, host) in [server, worker].into_iter().enumerate() {
            let (near, far) = (format!("10.12{place}.{number}.1"), format!("10.12{place}.{number}.2"));
            let port = format!("port{place}");
            ip(&["-n", host, "link", "add", "cable", "type", "veth", "peer", "name", &port, "netns", router])?;
            ip(&["-n", host, "address", "add", &format!("{near}/24"), "dev", "cable"])?;
            ip(&["-n", router, "address", "add", &format!("{far}/24"), "dev", &port])?;
            ip(&["-n", host, "link", "set", "lo", "up"])?;
            ip(&["-n", host, "link", "set", "cable", "up"])?;
            ip(&["-n", router, "link", "set", &port, "up"])?;
            ip(&["-n", host, "route", "add", "default", "via", &far])?;
        }
        self.forward(true)
    }

    /// The router passes packets on, or drops them without an answer.
    fn forward(&self, on: bool) -> Result<(), String> {
        let set = format!("echo {} > /proc/sys/net/ipv4/ip_forward", u8::from(on));
        ip(&["netns", "exec", &self.hosts[2], "sh", "-c", &set])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = ip(&["netns", "del", host]);
        }
    }
}

/// A server and a worker on different hosts, and a worker beside the server that starts later.
struct Lab {
    network: Network,
    server: Server,
    _far: Worker,
}

impl Lab {
    fn start(number: u8, lease: &str) -> Option<Lab> {
        let network = Network::create(number)?;
        let listen = format!("10.120.{number}.1:7177");
        let mut server = Server::start_in(Some(&network.hosts[0]), &listen, &["--lease", lease]);
        let created = server.home.output(&["token", "create", "--scope", "admin"]);
        let token = String::from_utf8_lossy(&created.stdout).trim().to_owned();
        server.environment.push(("ASSAY_TOKEN", token));
        let far = server.worker_in(Some(&network.hosts[1]), "far", &[]);
        server.wait_for_workers(1);
        Some(Lab { network, server, _far: far })
    }

    fn forward(&self, on: bool) {
        self.network.forward(on).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_short_partition_costs_nothing() {
    let Some(lab) = Lab::start(1, "600") else { return };
    let run = lab.server.submit("resumed.yaml", &[]);
    wait_for("the training's state to come to the server", || (!states(&lab.server).is_empty()).then_some(()));
    lab.forward(false);
    // The worker notices that the connection is dead, and the training continues meanwhile.
    std::thread::sleep(std::time::Duration::from_secs(8));
    lab.forward(true);
    let ran = lab.server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    assert_eq!(ran.task("train")["attempts"], 1, "{}", lab.server.log(&run, "train"));
    assert_eq!(outcome(&ran), outcome(Home::new().run("resumed.yaml", &[]).succeeded()));
}

#[test]
fn a_worker_behind_a_long_partition_is_replaced_and_its_late_reports_are_refused() {
    let Some(lab) = Lab::start(2, "2") else { return };
    let run = lab.server.submit("resumed.yaml", &[]);
    wait_for("the training's state to come to the server", || (!states(&lab.server).is_empty()).then_some(()));
    lab.forward(false);
    wait_for("the server to give the worker up", || {
        let why = lab.server.json(&["why", &run, "train"]);
        (why["state"] == "ready").then_some(())
    });
    let _near = lab.server.worker("near", &[]);
    wait_for("the training to continue", || {
        (lab.server.json(&["why", &run, "train"])["state"] == "running").then_some(())
    });
    lab.forward(true);
    let ran = lab.server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    assert_eq!(outcome(&ran), outcome(Home::new().run("resumed.yaml", &[]).succeeded()));
    let log = lab.server.log(&run, "train");
    assert!(log.contains("attempt 1 on far") && log.contains("attempt 2 on near"), "{log}");
    // The far worker ends its attempt and rejoins.
    lab.server.wait_for_workers(2);
}
