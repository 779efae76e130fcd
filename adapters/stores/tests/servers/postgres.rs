//! A PostgreSQL server of a test's own.

use super::{Process, free_port, program};
use rehome_stores::{Postgres, RemoteOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// The role that owns everything. Anybody may be it, from this machine.
const USER: &str = "rehome";

pub(crate) struct PostgresServer {
    bin: PathBuf,
    folder: TempDir,
    settings: Vec<String>,
    pub(crate) port: u16,
    process: Option<Process>,
}

/// Where Debian puts the programs of each version, the newest first.
fn places() -> Vec<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|all| all.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    versions.reverse();
    versions
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The program, as a user that PostgreSQL accepts.
fn command(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn give(folder: &Path) {
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(folder));
    }
}

/// An empty database of this version, made once and kept among what cargo builds.
fn template(bin: &Path) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let version = Command::new(bin.join("initdb")).arg("--version").output().unwrap().stdout;
    let version: String = String::from_utf8_lossy(&version).chars().filter(char::is_ascii_alphanumeric).collect();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(version);
    if !kept.exists() {
        let folder = tempfile::tempdir().unwrap();
        give(folder.path());
        let mut initdb = command(&bin.join("initdb"));
        initdb.current_dir("/").arg("-D").arg(folder.path().join("data"));
        run(initdb.args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]));
        let copy = kept.with_extension(std::process::id().to_string());
        run(Command::new("cp").arg("-a").arg(folder.path()).arg(&copy));
        // Another program may have been faster.
        if std::fs::rename(&copy, &kept).is_err() {
            std::fs::remove_dir_all(&copy).unwrap();
        }
    }
    kept
}

impl PostgresServer {
    /// Starts one; `settings` are `NAME=VALUE`.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        let bin = program("initdb", &places())?.parent()?.to_owned();
        let folder = tempfile::tempdir().unwrap();
        run(Command::new("cp").arg("-a").arg(template(&bin).join("data")).arg(folder.path()));
        give(folder.path());
        let settings = settings.iter().map(|&text| text.to_owned()).collect();
        let mut server = Self { bin, folder, settings, port: free_port(), process: None };
        server.restart();
        Some(server)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Puts a file into its folder, as its own.
    pub(crate) fn put_file(&self, name: &str, text: &[u8]) {
        let path = self.data().join(name);
        std::fs::write(&path, text).unwrap();
        run(Command::new("chmod").arg("600").arg(&path));
        give(&path);
    }

    pub(crate) fn restart(&mut self) {
        let mut command = command(&self.bin.join("postgres"));
        command.current_dir("/").arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        let sockets = format!("unix_socket_directories={}", self.data().display());
        for setting in [sockets.as_str(), "listen_addresses=localhost", "dynamic_shared_memory_type=mmap"] {
            command.arg("-c").arg(setting);
        }
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        self.process = Some(Process::start(&mut command, &self.folder.path().join("log"), self.port));
    }

    /// `kill -9` of the server and of all its processes.
    pub(crate) fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let own = process.id().to_string();
        let children: Vec<String> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|pid| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                // After the name, which may hold anything: state, then the parent.
                let parent = status.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
                parent == Some(own.as_str())
            })
            .collect();
        process.kill();
        for child in &children {
            // It may have ended by itself.
            let _ = Command::new("kill").args(["-9", child]).output();
        }
        while children.iter().any(|child| Path::new("/proc").join(child).join("stat").exists()) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn address(&self) -> String {
        address(self.port)
    }

    /// Opens a store, which is made where there is none.
    pub(crate) fn open(&self, namespace: &str) -> Postgres {
        let options = RemoteOptions { namespace: namespace.to_owned(), ..RemoteOptions::default() };
        super::faults::patiently(|| Postgres::migrate_with(&self.address(), options.clone()));
        super::faults::patiently(|| Postgres::open_with(&self.address(), options.clone()))
    }

    pub(crate) fn raw(&self) -> Raw {
        Raw::new(&self.address())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn address(port: u16) -> String {
    format!("postgres://{USER}@localhost:{port}/postgres?sslmode=disable")
}

/// A session beside the engine.
pub(crate) struct Raw {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Raw {
    fn new(address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = super::faults::patiently(|| {
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                Ok::<_, tokio_postgres::Error>(client)
            })
        });
        Self { runtime, client }
    }

    /// The first column of the rows of the last statement.
    pub(crate) fn run(&self, sql: &str) -> Vec<String> {
        self.try_run(sql).unwrap()
    }

    /// The same, where the server may refuse.
    pub(crate) fn try_run(&self, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        });
        Ok(rows.collect())
    }
}
