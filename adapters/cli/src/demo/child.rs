//! A node process: started, told, listened to, stopped, continued, killed and replaced.

use super::lines::{Order, Said};
use crate::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// What a node process said, and which run of it.
pub(crate) struct Heard {
    pub(crate) node: usize,
    pub(crate) run: u64,
    /// `None`: it ended.
    pub(crate) said: Option<Said>,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) run: u64,
    /// Where it listens, once it serves.
    pub(crate) addr: Option<String>,
    pub(crate) generation: u64,
    pub(crate) stopped: bool,
    orders: mpsc::UnboundedSender<Order>,
    pid: Option<Pid>,
    child: Child,
}

impl Node {
    pub(crate) fn start(
        index: usize,
        run: u64,
        arguments: &[String],
        heard: &mpsc::UnboundedSender<Heard>,
    ) -> Result<Self, Failure> {
        let name = format!("node-{index}");
        let program = std::env::current_exe().map_err(Failure::run)?;
        let mut child = Command::new(program)
            .arg("demo-node")
            .args(["--name", &name])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::run)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::run("a child without pipes"));
        };
        let (orders, mut inbox) = mpsc::unbounded_channel::<Order>();
        tokio::spawn(async move {
            while let Some(order) = inbox.recv().await {
                let Ok(mut line) = serde_json::to_vec(&order) else { continue };
                line.push(b'\n');
                if stdin.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        let heard = heard.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(said) => _ = heard.send(Heard { node: index, run, said: Some(said) }),
                    Err(error) => eprintln!("node-{index} said what nobody understands: {error}: {line}"),
                }
            }
            let _ = heard.send(Heard { node: index, run, said: None });
        });
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { name, run, addr: None, generation: 0, stopped: false, orders, pid, child })
    }

    pub(crate) fn tell(&self, order: Order) {
        // A node that ended hears nothing; its end is heard.
        let _ = self.orders.send(order);
    }

    pub(crate) fn serves(&self) -> bool {
        self.addr.is_some() && !self.stopped
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            let _ = kill_process(pid, signal);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        self.stopped = true;
    }

    pub(crate) fn go_on(&mut self) {
        self.signal(Signal::CONT);
        self.stopped = false;
    }

    /// Kills it as a crash would, and waits for its end.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::CONT);
        let _ = self.child.kill().await;
    }

    pub(crate) async fn ended(&mut self) {
        let _ = tokio::time::timeout(std::time::Duration::from_secs(12), self.child.wait()).await;
        let _ = self.child.kill().await;
    }
}
