//! The whole program on real servers, each started here on a free loopback port in a folder that goes away. A server
//! that is not installed is skipped aloud; with `REHOME_ENGINES=require` that is a failure.

#![cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A server that ends with its test.
struct Server {
    process: Child,
    address: String,
    /// Its folder, which goes after it.
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr()).expect("a port").port()
}

/// The program of that name on the search path or in one of these folders.
fn program(name: &str, beside: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(beside.iter().cloned());
    let found = beside.iter().cloned().chain(folders).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        assert_ne!(std::env::var("REHOME_ENGINES").as_deref(), Ok("require"), "{name} is not installed");
        eprintln!("skipped: {name} not installed");
    }
    found
}

fn start(mut command: Command, port: u16, address: String, folder: tempfile::TempDir) -> Server {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = command.spawn().expect("the server starts");
    let mut server = Server { process, address, _folder: folder };
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(server.process.try_wait().expect("a child").is_none(), "the server ended");
        assert!(began.elapsed() < Duration::from_secs(60), "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

fn rehome(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rehome"))
        .args(arguments)
        .stdin(Stdio::null())
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the program starts")
}

#[track_caller]
fn good(arguments: &[&str]) -> String {
    let output = rehome(arguments);
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Prepares the store, looks at it, moves objects over it, and looks at what they left.
fn whole_program(server: &Server, engine: &str) {
    let joint = if server.address.contains('?') { '&' } else { '?' };
    let store = format!("{}{joint}namespace=whole", server.address);
    good(&["store", "migrate", &store]);
    let checked = good(&["store", "check", &store, "--writes", "50"]);
    assert!(checked.contains(engine) && checked.contains("p50"), "{checked}");
    assert_eq!(good(&["store", "dump", &store]), "", "the check leaves nothing");
    let sizes = ["--objects", "20", "--clients", "2", "--moves", "60", "--seed", "4", "--json"];
    let said = good(&[&["demo", "--store", &store][..], &sizes].concat());
    let verdict: serde_json::Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    assert_eq!((verdict["store"].as_str(), verdict["moves"].as_u64()), (Some(engine), Some(60)), "{verdict}");
    for zero in ["lost", "duplicated", "reordered", "double_run", "unbalanced"] {
        assert_eq!(verdict[zero], 0, "{verdict}");
    }
    assert!(verdict["moved"].as_u64() > Some(50), "{verdict}");
    let dump = good(&["store", "dump", &store]);
    assert_eq!(dump.lines().filter(|line| line.starts_with("authority actor ")).count(), 20, "{dump}");
    assert!(dump.contains("made by relocation"), "{dump}");
    let one = good(&["store", "dump", &store, "--object", "object-7"]);
    assert_eq!(one.lines().count(), 3, "{one}");
    assert_eq!(rehome(&["store", "dump", &store, "--object", "nobody"]).status.code(), Some(2));
}

#[cfg(feature = "redis")]
#[test]
fn the_whole_program_on_redis() {
    let Some(program) = program("redis-server", &[]) else { return };
    let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder"));
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
    command.args(["--appendfsync", "always", "--dir"]).arg(folder.path());
    whole_program(&start(command, port, format!("redis://127.0.0.1:{port}"), folder), "redis");
}

#[cfg(feature = "etcd")]
#[test]
fn the_whole_program_on_etcd() {
    let Some(program) = program("etcd", &[]) else { return };
    let (port, peers, folder) = (free_port(), free_port(), tempfile::tempdir().expect("a folder"));
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(folder.path().join("data")).args(["--name", "one"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("one={peer}")]);
    whole_program(&start(command, port, format!("etcd://127.0.0.1:{port}"), folder), "etcd");
}

/// As a user that PostgreSQL accepts: it refuses root.
#[cfg(feature = "postgres")]
fn as_postgres(program: &Path, folder: &Path) -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root {
        return Command::new(program);
    }
    let given = Command::new("chown").args(["-R", "postgres:postgres"]).arg(folder).status().expect("chown");
    assert!(given.success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

#[cfg(feature = "postgres")]
#[test]
fn the_whole_program_on_postgres() {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    places.sort();
    places.reverse();
    let Some(initdb) = program("initdb", &places) else { return };
    let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder"));
    let data = folder.path().join("data");
    let mut command = as_postgres(&initdb, folder.path());
    command.current_dir("/").arg("-D").arg(&data).args(["-U", "rehome", "-A", "trust", "--no-sync"]);
    assert!(command.output().expect("initdb").status.success());
    let mut command = as_postgres(&initdb.with_file_name("postgres"), folder.path());
    command.current_dir("/").arg("-D").arg(&data).args(["-p", &port.to_string()]);
    command.args(["-c", "listen_addresses=127.0.0.1", "-c"]).arg(format!("unix_socket_directories={}", data.display()));
    let address = format!("postgres://rehome@127.0.0.1:{port}/postgres");
    let server = start(command, port, address, folder);
    // It listens a moment before it takes anybody in.
    let began = Instant::now();
    while !rehome(&["store", "migrate", &server.address]).status.success() {
        assert!(began.elapsed() < Duration::from_secs(30), "the server takes nobody in");
        std::thread::sleep(Duration::from_millis(100));
    }
    whole_program(&server, "postgres");
}
