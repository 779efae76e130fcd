//! A Redis server of a test's own.

use super::{Process, free_port, program};
use rehome_stores::{Redis, RemoteOptions};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Settings under which Redis keeps what it acknowledged.
pub(crate) const SAFE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

pub(crate) struct RedisServer {
    program: PathBuf,
    folder: TempDir,
    settings: Vec<String>,
    pub(crate) port: u16,
    /// Where servers of a cluster talk to each other.
    pub(crate) bus: u16,
    process: Option<Process>,
}

impl RedisServer {
    /// Starts one. `PORT` and `BUS` in the settings stand for its ports.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        let program = program("redis-server", &[])?;
        let settings = settings.iter().map(|&text| text.to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { program, folder, settings, port: free_port(), bus: free_port(), process: None };
        server.restart();
        Some(server)
    }

    /// Starts it again where it was, on what it left.
    pub(crate) fn restart(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("--port").arg(self.port.to_string()).args(["--bind", "127.0.0.1", "--save", "", "--dir"]);
        let settings = self.settings.iter().map(|text| match text.as_str() {
            "PORT" => self.port.to_string(),
            "BUS" => self.bus.to_string(),
            other => other.to_owned(),
        });
        command.arg(self.folder.path()).args(settings);
        self.process = Some(Process::start(&mut command, &self.folder.path().join("log"), self.port));
    }

    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    pub(crate) fn open(&self, namespace: &str) -> Redis {
        open(self.port, namespace)
    }
}

/// Opens a store, also while the server still loads.
pub(crate) fn open(port: u16, namespace: &str) -> Redis {
    let options = RemoteOptions { namespace: namespace.to_owned(), ..RemoteOptions::default() };
    super::faults::patiently(|| Redis::open_with(&format!("redis://127.0.0.1:{port}"), options.clone()))
}
