//! Real servers for the tests of engines: started on free loopback ports in folders that go away, and ended by their
//! process id. Where a server's program is not installed its tests are skipped aloud; with `REHOME_ENGINES=require` in
//! the environment they fail instead.

#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod certificates;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod faults;
pub(crate) mod pace;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod proxy;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The program of that name, if it is installed.
pub(crate) fn program(name: &str, beside: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(beside.iter().cloned())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var("REHOME_ENGINES").as_deref() != Ok("require"), "{name} is not installed");
        eprintln!("skipped: {name} not installed");
    }
    found
}

/// A process that is killed when this is dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it and waits until something listens at `port`.
    pub(crate) fn start(command: &mut Command, log: &Path, port: u16) -> Self {
        let out = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let child =
            command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).spawn().expect("a process");
        let mut process = Self(child);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = process.0.try_wait().unwrap() {
                panic!("the server ended ({status}): {}", std::fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(10));
        }
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
