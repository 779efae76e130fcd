//! `rehome node`: one node of the sample objects, until a signal.

use crate::Failure;
use crate::demo::Hits;
use rehome::node::TypeConfig;
use rehome_tokio::{HostBuilder, StartError};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// The configuration file.
    #[arg(long)]
    config: PathBuf,
}

/// The configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeConfig {
    /// The node's routing id and owner id.
    name: String,
    /// All nodes of one mesh talk to each other.
    #[serde(default = "default_mesh")]
    mesh: String,
    /// `sqlite:PATH`.
    store: String,
    /// Where to listen.
    listen: SocketAddr,
    /// Where other nodes listen.
    #[serde(default)]
    peers: Vec<SocketAddr>,
    /// Seconds that a shutdown may take.
    #[serde(default = "default_shutdown")]
    shutdown_seconds: u64,
}

fn default_mesh() -> String {
    String::from("rehome")
}

const fn default_shutdown() -> u64 {
    30
}

pub(crate) async fn run(arguments: NodeArgs) -> Result<(), Failure> {
    let path = arguments.config.display();
    let text =
        std::fs::read_to_string(&arguments.config).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    let config: NodeConfig =
        toml::from_str(&text).map_err(|error| Failure::usage(format!("{path}: {}", error.message())))?;
    let engine = rehome_stores::open(&config.store).map_err(Failure::usage)?;
    for warning in engine.warnings() {
        eprintln!("rehome: warning: {warning}");
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::run)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::run)?;
    let start = |error: StartError| match error {
        StartError::Over => Failure::run(error),
        StartError::Config(_) | StartError::Name(_) | StartError::Listen { .. } => Failure::usage(error),
    };
    let mut builder = HostBuilder::new(&config.name, &config.mesh)
        .and_then(|builder| builder.object::<Hits>("hits", TypeConfig::default(), Default::default()))
        .map_err(start)?;
    for peer in config.peers {
        builder = builder.peer(peer);
    }
    let builder = builder.listen(config.listen).await.map_err(start)?;
    let addr = builder.local_addr().map_or_else(String::new, |addr| addr.to_string());
    let host = builder.start(engine).await.map_err(start)?;
    say!("node {} serves on {addr}", host.node());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = host.over() => return Err(Failure::run("the node lost its lease")),
    }
    say!("node {} shuts down", host.node());
    host.shutdown(Duration::from_secs(config.shutdown_seconds)).await;
    say!("node {} is over", host.node());
    Ok(())
}
