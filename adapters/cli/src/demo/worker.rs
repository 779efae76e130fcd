//! A node process of the demonstration: a host, clients that go through it, and a loop that carries out orders.

use super::lines::{Account, Order, Outcome, Said, Turns};
use super::object::{Answer, Dump, Hit, Hits, Shared, Violation};
use crate::Failure;
use bytes::Bytes;
use rehome::fence::ObjectKey;
use rehome::id::{ObjectId, RoutingId};
use rehome::node::{CallError, Event, MoveOutcome, Point, Timing, TypeConfig};
use rehome::time::Instant;
use rehome_tokio::{Host, HostBuilder, clock, payload};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

/// What the demonstration starts a node process with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    name: String,
    #[arg(long)]
    store: String,
    #[arg(long)]
    state_bytes: usize,
    /// Short leases, so that a dead node is replaced within seconds.
    #[arg(long)]
    fast_lease: bool,
}

pub(crate) fn timing(fast_lease: bool) -> Timing {
    let timing = Timing::default();
    if !fast_lease {
        return timing;
    }
    Timing {
        lease_ttl: Duration::from_secs(6),
        lease_renew: Duration::from_millis(1500),
        lease_timeout: Duration::from_secs(1),
        lease_margin: Duration::from_secs(2),
        ..timing
    }
}

pub(crate) fn key(object: u64) -> ObjectKey {
    // The decimal digits of a number are a valid id.
    ObjectKey::actor(ObjectId::new(&format!("object-{object}")).unwrap_or_else(|_| std::process::abort()))
}

struct Worker {
    host: Host,
    name: String,
    shared: Arc<Shared>,
    said: mpsc::UnboundedSender<Said>,
    books: Arc<Mutex<Books>>,
    stop: Arc<AtomicBool>,
    answered: AtomicU64,
    requests: AtomicU64,
    sent: AtomicU64,
    ambiguous: AtomicU64,
    not_run: AtomicU64,
    unbalanced: AtomicU64,
    probes: AtomicU64,
}

/// What the clients of this process know.
#[derive(Default)]
struct Books {
    pages: HashMap<(u64, u64), Page>,
    turns: Turns,
    /// Since when a newer incarnation is known, by object: what the older ones answer afterwards is a second owner.
    retired: HashMap<(u64, u64), Instant>,
}

#[derive(Clone, Debug, Default)]
struct Page {
    incarnation: u64,
    next: u64,
    open: BTreeSet<u64>,
}

/// A process that was stopped reads no input, so it could not hear that the demonstration is gone, and would stay.
#[cfg(target_os = "linux")]
fn end_with_parent() -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(Failure::run)
}

#[cfg(not(target_os = "linux"))]
const fn end_with_parent() -> Result<(), Failure> {
    Ok(())
}

pub(crate) async fn run(args: WorkerArgs) -> Result<(), Failure> {
    end_with_parent()?;
    let engine = rehome_stores::open(&args.store).map_err(Failure::usage)?;
    let shared = Arc::new(Shared { state_bytes: args.state_bytes, violations: Mutex::default() });
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let config = TypeConfig { state_limit: u64::MAX, ..TypeConfig::default() };
    let builder = HostBuilder::new(&args.name, "demo")
        .and_then(|builder| builder.object_shared::<Hits>("hits", config, Arc::clone(&shared)))
        .map_err(Failure::usage)?
        .timing(timing(args.fast_lease))
        .listen(any)
        .await
        .map_err(Failure::usage)?;
    let addr = builder.local_addr().map_or_else(String::new, |addr| addr.to_string());
    let host = builder.start(engine).await.map_err(Failure::run)?;
    let (said, lines) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write_lines(lines));
    let generation = host.node().generation.get();
    let worker = Arc::new(Worker {
        host: host.clone(),
        name: args.name,
        shared,
        said,
        books: Arc::default(),
        stop: Arc::default(),
        answered: AtomicU64::new(0),
        requests: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        ambiguous: AtomicU64::new(0),
        not_run: AtomicU64::new(0),
        unbalanced: AtomicU64::new(0),
        probes: AtomicU64::new(0),
    });
    tokio::spawn(Arc::clone(&worker).watch());
    tokio::spawn(Arc::clone(&worker).report());
    worker.say(Said::Serving { addr, generation });
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    loop {
        let line = tokio::select! {
            line = orders.next_line() => line,
            () = host.over() => break,
        };
        // Without a demonstration there is nothing to do.
        let Ok(Some(line)) = line else { break };
        match serde_json::from_str(&line) {
            Ok(Order::Shutdown) => break,
            Ok(order) => worker.order(order).await,
            Err(error) => return Err(Failure::usage(error)),
        }
    }
    host.shutdown(Duration::from_secs(10)).await;
    worker.told();
    worker.ledger();
    worker.say(Said::Over);
    drop(worker);
    // The tasks that still hold a sender end with the process.
    let _ = tokio::time::timeout(Duration::from_millis(300), writer).await;
    Ok(())
}

async fn write_lines(mut lines: mpsc::UnboundedReceiver<Said>) {
    let mut out = tokio::io::stdout();
    while let Some(said) = lines.recv().await {
        let Ok(mut line) = serde_json::to_vec(&said) else { continue };
        line.push(b'\n');
        if out.write_all(&line).await.is_err() {
            return;
        }
        let _ = out.flush().await;
    }
}

impl Worker {
    fn say(&self, said: Said) {
        // Without a writer the process ends.
        let _ = self.said.send(said);
    }

    fn books<R>(&self, with: impl FnOnce(&mut Books) -> R) -> R {
        with(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn broken(&self, kind: Violation, text: String) {
        self.say(Said::Broken { kind, text });
    }

    /// Tells what the objects found.
    fn told(&self) {
        let found = self.shared.violations.lock().map(|mut found| std::mem::take(&mut *found)).unwrap_or_default();
        for (kind, text) in found {
            self.broken(kind, text);
        }
    }

    async fn report(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.told();
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            self.say(Said::Count {
                answered: count(&self.answered),
                requests: count(&self.requests),
                sent: count(&self.sent),
            });
        }
    }

    /// Turns the node's events into the points of moves.
    async fn watch(self: Arc<Self>) {
        let mut events = self.host.events();
        let mut points: BTreeMap<u128, Instant> = BTreeMap::new();
        loop {
            let timed = match events.recv().await {
                Ok(timed) => timed,
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => continue,
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            };
            let at = timed.at;
            match timed.event {
                Event::Point { relocation, point: Point::Sealed | Point::Committed, .. } => {
                    points.insert(relocation.get(), at);
                }
                Event::Point { relocation, object, point: Point::Submitted } => {
                    if let (Some(sealed), Some(object)) = (points.remove(&relocation.get()), number(&object)) {
                        self.say(Said::Source {
                            relocation: relocation.to_string(),
                            object,
                            sealed_at: sealed.as_nanos() / 1000,
                            submitted_at: at.as_nanos() / 1000,
                        });
                    }
                }
                Event::Point { relocation, point: Point::Opened, .. } => {
                    if let Some(committed) = points.remove(&relocation.get()) {
                        self.say(Said::Opened {
                            relocation: relocation.to_string(),
                            resume_us: micros(at.since(committed)),
                            committed_at: committed.as_nanos() / 1000,
                            opened_at: at.as_nanos() / 1000,
                        });
                    }
                }
                Event::Unbalanced { .. } => {
                    self.unbalanced.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }

    async fn order(self: &Arc<Self>, order: Order) {
        let me = Arc::clone(self);
        match order {
            Order::Peer { addr } => {
                if let Ok(addr) = addr.parse() {
                    self.host.add_peer(addr);
                }
            }
            Order::Create { first, count } => {
                tokio::spawn(async move {
                    let mut failed = Vec::new();
                    for object in first..first + count {
                        if let Err(error) = me.host.create(key(object), "hits", Bytes::new()).await {
                            failed.push(format!("object {object}: {error}"));
                        }
                    }
                    me.say(Said::Created { count, failed });
                });
            }
            Order::Clients { ids, objects, seed } => {
                for id in ids {
                    tokio::spawn(Arc::clone(&me).client(id, objects, seed ^ id));
                }
            }
            Order::Move { id, object, to } => {
                tokio::spawn(async move { me.relocate(id, object, to).await });
            }
            Order::Recover { object } => {
                tokio::spawn(async move { me.recover(object).await });
            }
            Order::Cut => self.host.cut_connections().await,
            Order::Stop => {
                self.stop.store(true, Ordering::Relaxed);
                tokio::spawn(async move {
                    while Arc::strong_count(&me.stop) > 1 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    me.told();
                    me.ledger();
                });
            }
            Order::Dump { object } => {
                tokio::spawn(async move { me.dump(object).await });
            }
            Order::Shutdown => {}
        }
    }

    async fn dump(&self, object: u64) {
        let Ok(question) = payload("dump", Bytes::new()) else { return };
        let (dump, error) = match self.host.request(key(object), question, Duration::from_secs(10)).await {
            Ok(answer) => match serde_json::from_slice::<Dump>(&answer.bytes) {
                Ok(dump) => (Some(dump), String::new()),
                Err(error) => (None, error.to_string()),
            },
            Err(error) => (None, error.to_string()),
        };
        self.say(Said::Dumped { object, dump, error });
    }

    async fn recover(&self, object: u64) {
        let reclaimed = self.host.reclaim(key(object), Bytes::new()).await.is_ok();
        let route = self.host.locate(key(object)).await.ok().flatten();
        let owner = route.map(|route| (route.node.rid.to_string(), route.node.generation.get()));
        self.say(Said::Recovered { object, owner, reclaimed });
    }

    async fn relocate(self: Arc<Self>, id: u64, object: u64, to: String) {
        let Ok(target) = RoutingId::new(to.into_bytes()) else { return };
        let done = Arc::new(AtomicBool::new(false));
        let probe = tokio::spawn(Arc::clone(&self).probe(object, Arc::clone(&done)));
        // The probe has its rhythm before the object stops.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let outcome = self.host.relocate(key(object), target, None).await.outcome().await;
        done.store(true, Ordering::Relaxed);
        let gap = probe.await.ok().flatten();
        let (outcome, detail) = match outcome {
            Ok(MoveOutcome::Moved { relocation, .. }) => (Outcome::Moved, relocation.to_string()),
            Ok(MoveOutcome::KeptSource { reason, .. }) => (Outcome::KeptSource, format!("{reason:?}")),
            Ok(MoveOutcome::Refused(reason)) => (Outcome::Refused, format!("{reason:?}")),
            Ok(MoveOutcome::Lost { relocation }) => (Outcome::Lost, relocation.to_string()),
            Err(error) => (Outcome::Unknown, error.to_string()),
        };
        self.say(Said::Moved { id, outcome, detail, stop_us: None, gap_us: gap.map(micros) });
    }

    /// Asks one object again and again, one request at a time, while it moves: the longest gap between two answers.
    async fn probe(self: Arc<Self>, object: u64, done: Arc<AtomicBool>) -> Option<Duration> {
        let client = self.probe_id();
        let (mut last, mut longest, mut after) = (None::<Instant>, None::<Duration>, 0);
        while after < 2 && !self.stop.load(Ordering::Relaxed) {
            if done.load(Ordering::Relaxed) {
                after += 1;
            }
            if self.hit(client, object, true).await {
                let now = clock::now().mono;
                if let Some(last) = last.replace(now) {
                    longest = longest.max(Some(now.since(last)));
                }
            } else {
                last = None;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        longest
    }

    fn probe_id(&self) -> u64 {
        let count = self.probes.fetch_add(1, Ordering::Relaxed);
        self.host.node().generation.get().rotate_left(20)
            ^ super::object::mix(1, count, u64::from(self.name.as_bytes().last().copied().unwrap_or(0)))
    }

    /// Requests and one-way messages without pause, each to an object of chance.
    async fn client(self: Arc<Self>, id: u64, objects: u64, seed: u64) {
        let running = Arc::clone(&self.stop);
        let mut state = seed | 1;
        let mut chance = move |bound: u64| {
            state = super::object::mix(state, 7, 11);
            state % bound.max(1)
        };
        while !running.load(Ordering::Relaxed) {
            let object = chance(objects);
            let sends = chance(3);
            // All are on their way at once: their order is the node's to keep.
            let burst = (0..=sends).map(|index| self.hit(id, object, index == sends));
            let results = join_in_order(burst).await;
            if results.last() == Some(&false) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// One message of a client to an object. Says whether it was accepted or answered.
    async fn hit(&self, client: u64, object: u64, request: bool) -> bool {
        let started = clock::now().mono;
        let (sequence, floor) = self.books(|books| {
            let page = books.pages.entry((client, object)).or_default();
            let sequence = page.next;
            page.next += 1;
            page.open.insert(sequence);
            (sequence, page.open.first().copied().unwrap_or(sequence))
        });
        let Ok(message) = payload("hit", Hit { client, sequence, floor }.encode()) else { return false };
        let result = if request {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.host.request(key(object), message, Duration::from_secs(10)).await.map(Some)
        } else {
            self.host.send(key(object), message).await.map(|()| None)
        };
        match result {
            Ok(answer) => {
                let counter = if request { &self.answered } else { &self.sent };
                counter.fetch_add(1, Ordering::Relaxed);
                let answer = answer.and_then(|answer| Answer::decode(answer.bytes));
                self.books(|books| {
                    self.accepted(books, client, object, sequence, answer, started);
                });
                true
            }
            Err(error) => {
                let counter = match error {
                    CallError::NotRun(_) | CallError::Busy => &self.not_run,
                    _ => &self.ambiguous,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    fn accepted(
        &self,
        books: &mut Books,
        client: u64,
        object: u64,
        sequence: u64,
        answer: Option<Answer>,
        started: Instant,
    ) {
        let page = books.pages.entry((client, object)).or_default();
        page.open.remove(&sequence);
        let Some(answer) = answer else { return };
        // What went before it has run, or never will: the order of one client holds.
        page.open = page.open.split_off(&sequence);
        if page.incarnation != answer.incarnation {
            if page.incarnation != 0 {
                books.retired.entry((object, page.incarnation)).or_insert_with(|| clock::now().mono);
            }
            page.incarnation = answer.incarnation;
        }
        if let Some(since) = books.retired.get(&(object, answer.incarnation))
            && started > *since
        {
            let text = format!("object {object}: incarnation {} answered after a newer one", answer.incarnation);
            self.broken(Violation::DoubleRun, text);
        }
        if answer.chain == 0 {
            self.broken(Violation::DoubleRun, format!("object {object}: no chain at turn {}", answer.turn));
        }
        books.turns.entry((object, answer.incarnation)).or_default().push(answer.turn);
    }

    fn ledger(&self) {
        let (ledger, turns) = self.books(|books| {
            let ledger = books
                .pages
                .iter()
                .map(|((client, object), page)| Account {
                    client: *client,
                    object: *object,
                    incarnation: page.incarnation,
                    next: page.next,
                    open: page.open.iter().copied().collect(),
                })
                .collect();
            (ledger, std::mem::take(&mut books.turns))
        });
        for ((object, incarnation), turns) in turns {
            self.say(Said::Turns { object, incarnation, turns });
        }
        self.say(Said::Ledger {
            ledger,
            answered: self.answered.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            unbalanced: self.unbalanced.load(Ordering::Relaxed),
            ambiguous: self.ambiguous.load(Ordering::Relaxed),
            not_run: self.not_run.load(Ordering::Relaxed),
        });
        self.say(Said::Stopped);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn number(object: &ObjectKey) -> Option<u64> {
    object.id.as_str().strip_prefix("object-")?.parse().ok()
}

/// Polls all in order, so that their first steps happen in order too.
async fn join_in_order<F: Future<Output = bool>>(futures: impl Iterator<Item = F>) -> Vec<bool> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut left = false;
        for (future, result) in &mut waiting {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => left = true,
                }
            }
        }
        if left { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}
