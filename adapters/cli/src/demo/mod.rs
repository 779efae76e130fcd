//! `rehome demo`: node processes on loopback, clients without pause, moves all the while, and a verdict.

mod child;
mod lines;
mod object;
mod report;
mod verdict;
mod worker;

pub(crate) use object::Hits;
pub(crate) use worker::{WorkerArgs, run as worker};

use crate::Failure;
use child::{Heard, Node};
use indicatif::{ProgressBar, ProgressStyle};
use lines::{Order, Outcome, Said};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use verdict::{Counts, Evidence, Percentiles};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Node processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=32))]
    nodes: u64,
    /// Objects.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    objects: u64,
    /// Clients, spread over the nodes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    clients: u64,
    /// Moves.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    moves: u64,
    /// Bytes of state of one object.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(0..=1 << 30))]
    state_bytes: u64,
    /// Moves under way at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    concurrent: u64,
    /// Seed of every choice the demonstration makes; printed, and drawn where none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// Break connections; stop, continue, kill and restart node processes all the while.
    #[arg(long)]
    chaos: bool,
    /// Move objects for so many minutes, instead of counting moves.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: Option<u64>,
    /// One last line of JSON.
    #[arg(long)]
    json: bool,
    /// Write a page with pictures.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// A move under way.
struct Moving {
    object: u64,
    from: usize,
    to: usize,
    /// The run of the target that the move was meant for.
    to_run: u64,
}

struct Demo {
    args: DemoArgs,
    arguments: Vec<String>,
    nodes: Vec<Node>,
    heard: mpsc::UnboundedReceiver<Heard>,
    hearing: mpsc::UnboundedSender<Heard>,
    chance: u64,
    owners: BTreeMap<u64, usize>,
    moving: HashMap<u64, Moving>,
    /// Objects whose owner is looked for.
    orphans: BTreeSet<u64>,
    /// When an object last left a node.
    left: HashMap<(u64, usize), Instant>,
    evidence: Evidence,
    counts: HashMap<(usize, u64), (u64, u64, u64)>,
    timelines: report::Timelines,
    next_move: u64,
    next_client: u64,
    stopped: BTreeSet<(usize, u64)>,
    faults: BTreeMap<&'static str, u64>,
    /// Continues stopped nodes at these times.
    resumes: Vec<(Instant, usize, u64)>,
    next_fault: Instant,
    failed_creates: Vec<String>,
}

pub(crate) async fn run(args: DemoArgs) -> Result<(), Failure> {
    if let Some(path) = &args.report {
        // Found out now, not after an hour.
        std::fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    }
    let folder = tempfile::tempdir().map_err(Failure::run)?;
    let seed = args.seed.unwrap_or_else(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |since| since.subsec_nanos().into())
    });
    let mut arguments = vec![
        String::from("--store"),
        format!("sqlite:{}", folder.path().join("store.sqlite").display()),
        String::from("--state-bytes"),
        args.state_bytes.to_string(),
    ];
    if args.chaos {
        arguments.push(String::from("--fast-lease"));
    }
    let (hearing, heard) = mpsc::unbounded_channel();
    let mut demo = Demo {
        arguments,
        nodes: Vec::new(),
        heard,
        hearing,
        chance: seed,
        owners: BTreeMap::new(),
        moving: HashMap::new(),
        orphans: BTreeSet::new(),
        left: HashMap::new(),
        evidence: Evidence::default(),
        counts: HashMap::new(),
        timelines: report::Timelines::default(),
        next_move: 0,
        next_client: 0,
        stopped: BTreeSet::new(),
        faults: BTreeMap::new(),
        resumes: Vec::new(),
        next_fault: Instant::now() + Duration::from_secs(3),
        failed_creates: Vec::new(),
        args,
    };
    say!("seed {seed}, {} nodes, {} objects, {} clients", demo.args.nodes, demo.args.objects, demo.args.clients);
    demo.start().await?;
    let took = demo.traffic().await?;
    demo.settle().await;
    demo.finish(took)
}

impl Demo {
    fn random(&mut self, bound: u64) -> u64 {
        self.chance = object::mix(self.chance, 3, 5);
        self.chance % bound.max(1)
    }

    async fn hear(&mut self, wait: Duration) -> Option<Heard> {
        tokio::time::timeout(wait, self.heard.recv()).await.ok().flatten()
    }

    async fn start(&mut self) -> Result<(), Failure> {
        let nodes = usize::try_from(self.args.nodes).map_err(Failure::usage)?;
        for index in 0..nodes {
            let node = Node::start(index, 0, &self.arguments, &self.hearing)?;
            self.nodes.push(node);
        }
        self.wait("the nodes to serve", |demo| demo.nodes.iter().all(Node::serves)).await?;
        let each = self.args.objects.div_ceil(self.args.nodes);
        for index in 0..nodes {
            let first = (index as u64 * each).min(self.args.objects);
            let count = each.min(self.args.objects - first);
            for object in first..first + count {
                self.owners.insert(object, index);
            }
            self.nodes[index].tell(Order::Create { first, count });
        }
        let mut created = 0;
        while created < nodes {
            match self.hear(Duration::from_secs(60)).await {
                Some(Heard { said: Some(Said::Created { failed, .. }), .. }) => {
                    created += 1;
                    self.failed_creates.extend(failed);
                }
                Some(heard) => self.listen(heard)?,
                None => return Err(Failure::run("the objects were not created in time")),
            }
        }
        if let Some(first) = self.failed_creates.first() {
            return Err(Failure::run(format!("{} objects were not created: {first}", self.failed_creates.len())));
        }
        for index in 0..nodes {
            let share =
                self.args.clients / self.args.nodes + u64::from((index as u64) < self.args.clients % self.args.nodes);
            self.start_clients(index, share);
        }
        Ok(())
    }

    fn start_clients(&mut self, index: usize, count: u64) {
        let ids: Vec<u64> = (0..count).map(|offset| self.next_client + offset + 1).collect();
        self.next_client += count;
        let seed = self.random(u64::MAX);
        self.nodes[index].tell(Order::Clients { ids, objects: self.args.objects, seed });
    }

    async fn wait(&mut self, what: &str, until: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !until(self) {
            match self.hear(Duration::from_millis(200)).await {
                Some(heard) => self.listen(heard)?,
                None if Instant::now() > deadline => return Err(Failure::run(format!("waited too long for {what}"))),
                None => {}
            }
        }
        Ok(())
    }

    /// Moves and faults until there were enough.
    async fn traffic(&mut self) -> Result<Duration, Failure> {
        let started = Instant::now();
        let end = self.args.minutes.map(|minutes| started + Duration::from_secs(60 * minutes));
        let bar = match end {
            Some(_) => ProgressBar::new_spinner(),
            None => ProgressBar::new(self.args.moves),
        };
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} moves {msg}") {
            bar.set_style(style);
        }
        let mut shown = Instant::now();
        loop {
            let ended = self.ended_moves();
            let enough = end.map_or(ended >= self.args.moves, |end| Instant::now() >= end);
            if enough && self.moving.is_empty() {
                break;
            }
            if !enough {
                self.start_moves(end.is_some());
            }
            if self.args.chaos {
                self.fault(!enough).await?;
            }
            if let Some(heard) = self.hear(Duration::from_millis(20)).await {
                self.listen(heard)?;
                while let Ok(heard) = self.heard.try_recv() {
                    self.listen(heard)?;
                }
            }
            if shown.elapsed() > Duration::from_millis(200) {
                shown = Instant::now();
                let seconds = started.elapsed().as_secs_f64();
                let (answered, _, sent) = self.totals();
                let pause = Percentiles::of(&self.evidence.stops);
                bar.set_position(self.ended_moves());
                bar.set_message(format!(
                    "{:.0}/s, {:.0} messages/s, source stop p50 {} us p99 {} us",
                    self.ended_moves() as f64 / seconds,
                    (answered + sent) as f64 / seconds,
                    pause.p50,
                    pause.p99
                ));
            }
        }
        bar.finish();
        Ok(started.elapsed())
    }

    fn ended_moves(&self) -> u64 {
        self.evidence.outcomes.iter().filter(|(outcome, _)| **outcome != Outcome::Refused).map(|(_, count)| count).sum()
    }

    fn totals(&self) -> (u64, u64, u64) {
        self.counts.values().fold((0, 0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1, sum.2 + count.2))
    }

    fn start_moves(&mut self, endless: bool) {
        let concurrent = usize::try_from(self.args.concurrent).unwrap_or(usize::MAX);
        for _ in 0..concurrent {
            let under_way = u64::try_from(self.moving.len()).unwrap_or(u64::MAX);
            let planned = self.ended_moves() + under_way;
            if self.moving.len() >= concurrent || (!endless && planned >= self.args.moves) {
                return;
            }
            let object = self.random(self.args.objects);
            let to = usize::try_from(self.random(self.args.nodes)).unwrap_or(0);
            let busy = self.moving.values().any(|moving| moving.object == object) || self.orphans.contains(&object);
            let Some(from) = self.owners.get(&object).copied() else { continue };
            if busy || from == to || !self.nodes[from].serves() || !self.nodes[to].serves() {
                continue;
            }
            self.next_move += 1;
            let id = self.next_move;
            self.nodes[from].tell(Order::Move { id, object, to: self.nodes[to].name.clone() });
            self.moving.insert(id, Moving { object, from, to, to_run: self.nodes[to].run });
        }
    }

    fn listen(&mut self, heard: Heard) -> Result<(), Failure> {
        let Heard { node, run, said } = heard;
        let Some(said) = said else {
            if self.nodes[node].run == run {
                if !self.args.chaos {
                    return Err(Failure::run(format!("{} ended by itself", self.nodes[node].name)));
                }
                return self.replace(node);
            }
            return Ok(());
        };
        match said {
            Said::Serving { addr, generation } => self.serving(node, run, addr, generation),
            Said::Moved { id, outcome, detail, gap_us, .. } => self.moved(id, outcome, &detail, gap_us),
            Said::Opened { relocation, resume_us, committed_at, opened_at } => {
                self.evidence.resumes.push(resume_us);
                self.timelines.target(relocation, committed_at, opened_at);
            }
            Said::Source { relocation, object, sealed_at, submitted_at } => {
                self.evidence.stops.push(submitted_at.saturating_sub(sealed_at));
                self.timelines.source(relocation, object, sealed_at, submitted_at);
            }
            Said::Recovered { object, owner, reclaimed } => self.recovered(object, owner, reclaimed),
            Said::Count { answered, requests, sent } => {
                self.counts.insert((node, run), (answered, requests, sent));
            }
            Said::Ledger { ledger, answered, requests, sent, unbalanced, ambiguous, not_run } => {
                self.counts.insert((node, run), (answered, requests, sent));
                self.evidence.accounts.extend(ledger);
                self.evidence.unbalanced += unbalanced;
                self.evidence.ambiguous += ambiguous;
                self.evidence.not_run += not_run;
            }
            Said::Turns { object, incarnation, turns } => {
                self.evidence.turns.entry((object, incarnation)).or_default().extend(turns);
            }
            Said::Stopped => {
                self.stopped.insert((node, run));
            }
            Said::Dumped { object, dump, error } => match dump {
                Some(dump) => {
                    self.evidence.dumps.insert(object, dump);
                }
                None => self.evidence.silent.push((object, error)),
            },
            Said::Broken { kind, text } => self.evidence.broken.push((kind, text)),
            Said::Created { .. } | Said::Over => {}
        }
        Ok(())
    }

    fn serving(&mut self, node: usize, run: u64, addr: String, generation: u64) {
        if self.nodes[node].run != run {
            return;
        }
        for other in &self.nodes {
            if let Some(peer) = &other.addr {
                self.nodes[node].tell(Order::Peer { addr: peer.clone() });
                other.tell(Order::Peer { addr: addr.clone() });
            }
        }
        self.nodes[node].addr = Some(addr);
        self.nodes[node].generation = generation;
        if run > 0 {
            let share = (self.args.clients / self.args.nodes).max(1);
            self.start_clients(node, share);
        }
    }

    fn moved(&mut self, id: u64, outcome: Outcome, detail: &str, gap_us: Option<u64>) {
        let Some(moving) = self.moving.remove(&id) else { return };
        *self.evidence.outcomes.entry(outcome).or_default() += 1;
        self.timelines.outcome(detail, outcome);
        match outcome {
            // The new owner is gone already.
            Outcome::Moved if self.nodes[moving.to].run != moving.to_run => {
                self.evidence.bereaved.insert(moving.object);
                self.orphan(moving.object);
            }
            Outcome::Moved => {
                self.owners.insert(moving.object, moving.to);
                self.left.insert((moving.object, moving.from), Instant::now());
                self.evidence.gaps.extend(gap_us);
            }
            Outcome::KeptSource | Outcome::Refused => {}
            Outcome::Lost | Outcome::Unknown => {
                self.evidence.bereaved.insert(moving.object);
                self.orphan(moving.object);
            }
        }
    }

    /// Nobody is known to own the object: ask.
    fn orphan(&mut self, object: u64) {
        self.owners.remove(&object);
        self.orphans.insert(object);
        self.ask_recovery(object);
    }

    fn ask_recovery(&mut self, object: u64) {
        let serving: Vec<usize> = (0..self.nodes.len()).filter(|index| self.nodes[*index].serves()).collect();
        if serving.is_empty() {
            return;
        }
        let pick = usize::try_from(self.random(serving.len() as u64)).unwrap_or(0);
        self.nodes[serving[pick]].tell(Order::Recover { object });
    }

    fn recovered(&mut self, object: u64, owner: Option<(String, u64)>, reclaimed: bool) {
        self.evidence.reclaimed += u64::from(reclaimed);
        let owner = owner.and_then(|(name, generation)| {
            self.nodes.iter().position(|node| node.name == name && node.generation == generation && node.addr.is_some())
        });
        match owner {
            Some(owner) => {
                self.orphans.remove(&object);
                self.owners.insert(object, owner);
            }
            // The dead owner's lease has not ended yet; the next look is made with the next fault tick.
            None => {
                self.orphans.insert(object);
            }
        }
    }

    /// A node process is gone: what it owned or was about to own is looked for, and another run takes its place.
    fn replace(&mut self, node: usize) -> Result<(), Failure> {
        let run = self.nodes[node].run + 1;
        let owned: Vec<u64> =
            self.owners.iter().filter(|(_, owner)| **owner == node).map(|(object, _)| *object).collect();
        let follow = Duration::from_secs(32);
        self.evidence.bereaved.extend(
            self.left
                .iter()
                .filter(|((_, from), when)| *from == node && when.elapsed() < follow)
                .map(|((object, _), _)| *object),
        );
        let broken: Vec<u64> =
            self.moving.iter().filter(|(_, moving)| moving.from == node).map(|(id, _)| *id).collect();
        self.evidence
            .bereaved
            .extend(self.moving.values().filter(|moving| moving.to == node).map(|moving| moving.object));
        for id in broken {
            self.moved(id, Outcome::Unknown, "", None);
        }
        self.nodes[node] = Node::start(node, run, &self.arguments, &self.hearing)?;
        for object in owned {
            self.evidence.bereaved.insert(object);
            self.owners.remove(&object);
            self.orphans.insert(object);
        }
        Ok(())
    }

    /// Breaks something now and then, and looks for orphans.
    async fn fault(&mut self, begin: bool) -> Result<(), Failure> {
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.resumes).into_iter().partition(|(at, ..)| *at <= now);
        self.resumes = later;
        for (_, node, run) in due {
            if self.nodes[node].run == run {
                self.nodes[node].go_on();
            }
        }
        if now < self.next_fault {
            return Ok(());
        }
        self.next_fault = now + Duration::from_millis(300 + self.random(900));
        for object in self.orphans.clone() {
            self.ask_recovery(object);
        }
        if !begin {
            return Ok(());
        }
        let node = usize::try_from(self.random(self.args.nodes)).unwrap_or(0);
        if !self.nodes[node].serves() || self.nodes.iter().filter(|node| node.serves()).count() < 2 {
            return Ok(());
        }
        match self.random(12) {
            0..=5 => {
                *self.faults.entry("connections cut").or_default() += 1;
                self.nodes[node].tell(Order::Cut);
            }
            6..=9 => {
                *self.faults.entry("stopped and continued").or_default() += 1;
                self.nodes[node].stop();
                // Mostly short; sometimes past the lease.
                let long = self.random(6) == 0;
                let millis = if long { 6_500 + self.random(3_000) } else { 50 + self.random(2_500) };
                self.resumes.push((now + Duration::from_millis(millis), node, self.nodes[node].run));
            }
            _ => {
                *self.faults.entry("killed and restarted").or_default() += 1;
                self.nodes[node].kill().await;
                self.replace(node)?;
            }
        }
        Ok(())
    }

    /// Heals everything, stops the clients and asks everybody.
    async fn settle(&mut self) {
        for (_, node, run) in std::mem::take(&mut self.resumes) {
            if self.nodes[node].run == run {
                self.nodes[node].go_on();
            }
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut asked = Instant::now();
        while Instant::now() < deadline && !(self.orphans.is_empty() && self.nodes.iter().all(Node::serves)) {
            if asked.elapsed() > Duration::from_millis(300) {
                asked = Instant::now();
                for object in self.orphans.clone() {
                    self.ask_recovery(object);
                }
            }
            if let Some(heard) = self.hear(Duration::from_millis(50)).await {
                let _ = self.listen(heard);
            }
        }
        for node in &self.nodes {
            node.tell(Order::Stop);
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline
            && !(0..self.nodes.len()).all(|node| self.stopped.contains(&(node, self.nodes[node].run)))
        {
            if let Some(heard) = self.hear(Duration::from_millis(50)).await {
                let _ = self.listen(heard);
            }
        }
        for object in 0..self.args.objects {
            let node = self.owners.get(&object).copied().unwrap_or(0);
            self.nodes[node].tell(Order::Dump { object });
        }
        let wanted = usize::try_from(self.args.objects).unwrap_or(usize::MAX);
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline && self.evidence.dumps.len() + self.evidence.silent.len() < wanted {
            if let Some(heard) = self.hear(Duration::from_millis(50)).await {
                let _ = self.listen(heard);
            }
        }
        for object in 0..self.args.objects {
            if !self.evidence.dumps.contains_key(&object)
                && !self.evidence.silent.iter().any(|(silent, _)| *silent == object)
            {
                self.evidence.silent.push((object, String::from("no answer")));
            }
        }
        for node in &self.nodes {
            node.tell(Order::Shutdown);
        }
        for node in &mut self.nodes {
            node.ended().await;
        }
    }

    fn finish(mut self, took: Duration) -> Result<(), Failure> {
        let (answered, requests, sent) = self.totals();
        self.evidence.answered = answered;
        self.evidence.requests = requests;
        self.evidence.sent = sent;
        let counts = self.evidence.judge();
        let pause = Percentiles::of(&self.evidence.stops);
        let resume = Percentiles::of(&self.evidence.resumes);
        let gap = Percentiles::of(&self.evidence.gaps);
        let seconds = took.as_secs_f64();
        let outcome = |outcome| self.evidence.outcomes.get(&outcome).copied().unwrap_or(0);
        let moves = self.ended_moves();
        say!();
        say!(
            "moves          {moves}: {} moved, {} kept by their source, {} lost with their node, {} of unknown end; {} refused",
            outcome(Outcome::Moved),
            outcome(Outcome::KeptSource),
            outcome(Outcome::Lost),
            outcome(Outcome::Unknown),
            outcome(Outcome::Refused)
        );
        say!("requests       {requests}, answered {answered}; one-way messages accepted {sent}");
        say!(
            "not certain    {} of which nobody can tell, {} certainly not run",
            self.evidence.ambiguous,
            self.evidence.not_run
        );
        say!("lost           {}", counts.lost);
        say!("duplicated     {}", counts.duplicated);
        say!("reordered      {}", counts.reordered);
        say!("run twice      {}", counts.double_run);
        say!("unbalanced     {}", self.evidence.unbalanced);
        say!("source stop    p50 {} us, p99 {} us, max {} us", pause.p50, pause.p99, pause.max);
        say!("target resume  p50 {} us, p99 {} us, max {} us", resume.p50, resume.p99, resume.max);
        say!("client gap     p50 {} us, p99 {} us, max {} us", gap.p50, gap.p99, gap.max);
        say!(
            "rate           {:.0} moves/s, {:.0} messages/s in {seconds:.1} s",
            moves as f64 / seconds,
            (answered + sent) as f64 / seconds
        );
        if self.args.chaos {
            say!("faults         {:?}", self.faults);
            say!(
                "reclaimed      {} objects; {} accounts lost with a node, as documented",
                self.evidence.reclaimed,
                self.evidence.lost_with_node
            );
        }
        for text in counts.texts.iter().take(20) {
            say!("  {text}");
        }
        if let Some(path) = &self.args.report {
            let page = report::page(&self.evidence, &self.timelines, &counts, took);
            std::fs::write(path, page).map_err(|error| Failure::run(format!("{}: {error}", path.display())))?;
            say!("report         {}", path.display());
        }
        let good = self.verdict(&counts);
        say!("{}", if good { "verdict        good" } else { "verdict        BAD" });
        if self.args.json {
            let line = json!({
                "processes": self.args.nodes, "store": "sqlite", "objects": self.args.objects, "moves": moves,
                "moved": outcome(Outcome::Moved), "kept_source": outcome(Outcome::KeptSource), "requests": requests,
                "answered": answered, "lost": counts.lost, "duplicated": counts.duplicated, "reordered": counts.reordered,
                "double_run": counts.double_run, "unbalanced": self.evidence.unbalanced, "pause_us": pause,
                "resume_us": resume, "client_gap_us": gap, "moves_per_s": moves as f64 / seconds,
                "messages_per_s": (answered + sent) as f64 / seconds,
            });
            say!("{line}");
        }
        if good { Ok(()) } else { Err(Failure::Verdict) }
    }

    /// Without chaos every request is answered and every move ends at its target.
    fn verdict(&self, counts: &Counts) -> bool {
        let clean = counts.all() == 0 && self.evidence.unbalanced == 0 && self.evidence.silent.is_empty();
        let complete = self.evidence.requests == self.evidence.answered
            && self.evidence.ambiguous == 0
            && self.evidence.not_run == 0
            && self.ended_moves() >= self.args.moves.min(1);
        clean && (self.args.chaos || complete)
    }
}
