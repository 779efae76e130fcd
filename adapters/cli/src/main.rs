//! The `rehome` program. Bad input is one clear sentence and exit status 2; a demonstration whose verdict is bad, or a
//! run that failed, is exit status 1.

// The program looks at some events and answers and lets the others pass.
#![allow(clippy::wildcard_enum_match_arm)]

/// `println!` that does not mind a reader who has gone: a node still has to shut down, a demonstration to clean up.
macro_rules! say {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        // Nobody reads it.
        let _ = writeln!(std::io::stdout(), $($said)*);
    }};
}

mod decode;
mod demo;
mod node;
mod simulate;

use clap::{Parser, Subcommand};
use std::fmt::Display;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "rehome", version, about = "Moves live objects between nodes while messages keep arriving")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts node processes, moves objects between them under constant traffic, and judges what happened.
    Demo(demo::DemoArgs),
    /// Runs one node of the sample objects until a signal.
    Node(node::NodeArgs),
    /// Prints a record of the wire field by field, or says what is wrong with it.
    Decode(decode::DecodeArgs),
    /// Runs histories of a simulated cluster and judges every step of them.
    Simulate(simulate::SimulateArgs),
    /// Shows a history that failed, step by step.
    Replay(simulate::ReplayArgs),
    /// A node process of the demonstration.
    #[command(hide = true)]
    DemoNode(demo::WorkerArgs),
}

/// Why the program ends badly.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input was wrong: exit status 2.
    Usage(String),
    /// The run went wrong: exit status 1.
    Run(String),
    /// The verdict was printed already: exit status 1.
    Verdict,
}

impl Failure {
    pub(crate) fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }

    pub(crate) fn run(error: impl Display) -> Self {
        Self::Run(error.to_string())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Simulate(arguments) => simulate::simulate(&arguments),
        Command::Replay(arguments) => simulate::replay(&arguments),
        Command::Demo(arguments) => with_runtime(demo::run(arguments)),
        Command::Node(arguments) => with_runtime(node::run(arguments)),
        Command::DemoNode(arguments) => with_runtime(demo::worker(arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(sentence)) => {
            eprintln!("rehome: {sentence}");
            ExitCode::from(2)
        }
        Err(Failure::Run(sentence)) => {
            eprintln!("rehome: {sentence}");
            ExitCode::FAILURE
        }
        Err(Failure::Verdict) => ExitCode::FAILURE,
    }
}

fn with_runtime<F: Future<Output = Result<(), Failure>>>(future: F) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::run)?;
    let result = runtime.block_on(future);
    // A read of standard input may never end.
    runtime.shutdown_background();
    result
}
