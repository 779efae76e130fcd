//! An etcd cluster of a test's own, of one or more members.

use super::{Process, free_port, program};
use rehome_stores::{Etcd, RemoteOptions};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The least time to live at these servers: one and a half of their election time-out, in whole seconds.
pub(crate) const STEP: Duration = Duration::from_secs(1);

struct Member {
    port: u16,
    peer: u16,
    process: Option<Process>,
}

pub(crate) struct EtcdServer {
    program: PathBuf,
    folder: TempDir,
    settings: Vec<String>,
    scheme: &'static str,
    members: Vec<Member>,
}

impl EtcdServer {
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(1, "http", &[])
    }

    pub(crate) fn start_with(members: usize, scheme: &'static str, settings: &[&str]) -> Option<Self> {
        let program = program("etcd", &[])?;
        let members =
            (0..members).map(|_| Member { port: free_port(), peer: free_port(), process: None }).collect::<Vec<_>>();
        let settings = settings.iter().map(|&text| text.to_owned()).collect();
        let mut server = Self { program, folder: tempfile::tempdir().unwrap(), settings, scheme, members };
        for member in 0..server.members.len() {
            server.restart(member);
        }
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.members[0].port
    }

    pub(crate) fn restart(&mut self, number: usize) {
        let peers: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(n, member)| format!("m{n}=http://127.0.0.1:{}", member.peer))
            .collect();
        let member = &mut self.members[number];
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.port);
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.folder.path().join(format!("m{number}")));
        command.args(["--name", &format!("m{number}"), "--initial-cluster", &peers.join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap"]);
        command.args(&self.settings);
        member.process = Some(Process::start(&mut command, &self.folder.path().join("log"), member.port));
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.members[number].process.take().expect("it runs").kill();
    }

    pub(crate) fn address(&self) -> String {
        let members: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("etcd://{}", members.join(","))
    }

    /// Opens a store, also while the cluster still elects its leader.
    pub(crate) fn open(&self, namespace: &str) -> Etcd {
        let options = RemoteOptions { namespace: namespace.to_owned(), ..RemoteOptions::default() };
        super::faults::patiently(|| Etcd::open_with(&self.address(), options.clone()))
    }

    pub(crate) fn raw(&self) -> Raw {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let member = format!("http://127.0.0.1:{}", self.port());
        let client = runtime.block_on(etcd_client::Client::connect([member], None)).unwrap();
        Raw { runtime, client }
    }
}

/// A client beside the engine.
pub(crate) struct Raw {
    runtime: tokio::runtime::Runtime,
    client: etcd_client::Client,
}

impl Raw {
    /// Does something with it.
    pub(crate) fn run<T>(&self, act: impl AsyncFnOnce(etcd_client::Client) -> Result<T, etcd_client::Error>) -> T {
        self.runtime.block_on(act(self.client.clone())).unwrap()
    }
}
