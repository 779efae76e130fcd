//! `rehome simulate`: histories of a simulated cluster, many at once, each judged by every oracle after every step. And
//! `rehome replay`: one that failed, step by step.

use crate::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use rehome_tests::{Choice, Profile, Script, Summary, run, run_script, script_of, shrink};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::BufRead as _;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// The seeds, the last one not included; of each profile.
    #[arg(long, value_name = "A..B", value_parser = range, default_value = "0..1000")]
    seeds: (u64, u64),
    /// Only this profile: calm, lossy, store, pauses, kills, chaos, full, tiny, moves.
    #[arg(long)]
    profile: Option<String>,
    /// Actions of the user in each history.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    acts: u64,
    /// Ends after so many minutes, and not after the last seed: seeds beyond it follow.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: Option<u64>,
    /// Histories at once; as many as there are processors by default.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Where to write a history that failed, made small.
    #[arg(long, value_name = "FILE", default_value = "failure.json")]
    out: PathBuf,
    /// Runs to spend on making it small.
    #[arg(long, default_value_t = 3000)]
    tries: u64,
    /// Runs every history twice and compares everything that its nodes wanted done.
    #[arg(long)]
    twice: bool,
    /// Fails if fewer moves ended at their target: a run with too little in it proves nothing.
    #[arg(long, default_value_t = 0)]
    least_moves: u64,
    /// Fails if fewer kinds of fault than this were made a thousand times or more.
    #[arg(long, default_value_t = 0)]
    least_kinds: usize,
    /// Prints one last line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// What `rehome simulate` wrote.
    file: PathBuf,
    /// Prints only the last lines.
    #[arg(long, value_name = "LINES")]
    last: Option<usize>,
    /// Waits for a line of input after each step.
    #[arg(long)]
    step: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("give a range as 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    match (number(from)?, number(to)?) {
        (from, to) if from < to => Ok((from, to)),
        _ => Err(String::from("the range is empty")),
    }
}

/// A history that failed, as a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    version: u64,
    profile: String,
    /// The seed that it came from, and its actions.
    seed: u64,
    seed_acts: u64,
    /// What the oracles said.
    fault: String,
    acts: u64,
    /// `null` for what did not happen, `true` for what did, a number for one of several.
    choices: Vec<Option<Pick>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Pick {
    Hit(bool),
    Number(u64),
}

fn profile(name: &str) -> Result<Profile, Failure> {
    Profile::ALL
        .into_iter()
        .find(|profile| profile.name == name)
        .ok_or_else(|| Failure::usage(format!("there is no profile '{name}'")))
}

/// What kind of fault it is: two histories fail alike if their first faults are of one kind.
fn kind(summary: &Summary) -> Option<String> {
    let first = summary.faults.first()?;
    Some(first.split(':').next().unwrap_or(first).to_owned())
}

/// What all histories of a run were together.
#[derive(Default)]
struct Total {
    histories: u64,
    all: Summary,
}

/// A history that an oracle did not let pass.
struct Failed {
    profile: Profile,
    seed: u64,
    said: String,
    kind: Option<String>,
}

struct Search<'a> {
    arguments: &'a SimulateArgs,
    profiles: Vec<Profile>,
    until: Option<Instant>,
    next: AtomicU64,
    over: AtomicBool,
    total: Mutex<Total>,
    failed: Mutex<Option<Failed>>,
    bar: ProgressBar,
}

impl Search<'_> {
    /// The next history to run: every profile of a seed, then the next seed.
    fn next(&self) -> Option<(Profile, u64)> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let many = self.profiles.len() as u64;
        let seed = self.arguments.seeds.0.checked_add(index / many)?;
        let more = match self.until {
            Some(until) => Instant::now() < until,
            None => seed < self.arguments.seeds.1,
        };
        let profile = *self.profiles.get((index % many) as usize)?;
        (more && !self.over.load(Ordering::Relaxed)).then_some((profile, seed))
    }

    fn work(&self) {
        while let Some((profile, seed)) = self.next() {
            let acts = self.arguments.acts;
            // A panic of a node is a fault like any other, and its seed must be told.
            let one = catch_unwind(|| run(profile, seed, acts))
                .unwrap_or_else(|_| Summary { faults: vec![String::from("panic: see above")], ..Summary::default() });
            let mut said = one.faults.first().cloned();
            if said.is_none() && self.arguments.twice && run(profile, seed, self.arguments.acts).trace != one.trace {
                said = Some(String::from("the same seed made another history"));
            }
            if let (Some(said), Ok(mut failed)) = (said, self.failed.lock()) {
                self.over.store(true, Ordering::Relaxed);
                failed.get_or_insert(Failed { profile, seed, said, kind: kind(&one) });
                return;
            }
            if let Ok(mut total) = self.total.lock() {
                total.histories += 1;
                total.all.add(&one);
                let (histories, moved) = (total.histories, total.all.moved);
                self.bar.set_message(format!("{histories} histories, {moved} moves"));
            }
            self.bar.inc(1);
        }
    }
}

pub(crate) fn simulate(arguments: &SimulateArgs) -> Result<(), Failure> {
    let profiles = match &arguments.profile {
        Some(name) => vec![profile(name)?],
        None => Profile::ALL.to_vec(),
    };
    let jobs = match arguments.jobs {
        Some(jobs) => usize::try_from(jobs).map_err(Failure::usage)?,
        None => std::thread::available_parallelism().map_or(1, Into::into),
    };
    let began = Instant::now();
    let until = arguments.minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let bar = match until {
        Some(_) => ProgressBar::new_spinner(),
        None => ProgressBar::new((arguments.seeds.1 - arguments.seeds.0).saturating_mul(profiles.len() as u64)),
    };
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:30} {per_sec} {msg}") {
        bar.set_style(style);
    }
    let search = Search {
        arguments,
        profiles,
        until,
        next: AtomicU64::new(0),
        over: AtomicBool::new(false),
        total: Mutex::default(),
        failed: Mutex::default(),
        bar,
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| search.work());
        }
    });
    search.bar.finish_and_clear();
    let poisoned = |_| Failure::run("a history panicked");
    let (total, failed) = (
        search.total.into_inner().map_err(poisoned)?,
        search.failed.into_inner().map_err(|_| Failure::run("panicked"))?,
    );
    if let Some(failed) = failed {
        return Err(report(arguments, &failed));
    }
    tell(arguments, &total, began.elapsed());
    let Total { all: total, .. } = total;
    if total.moved < arguments.least_moves {
        return Err(Failure::run(format!("{} moves are too few to mean anything", total.moved)));
    }
    let kinds = total.made.values().filter(|count| **count >= 1000).count();
    if kinds < arguments.least_kinds {
        return Err(Failure::run(format!("{kinds} kinds of fault were made often enough, which is too few")));
    }
    Ok(())
}

fn tell(arguments: &SimulateArgs, total: &Total, took: Duration) {
    let seconds = took.as_secs_f64().max(1e-9);
    let Total { histories, all: total } = total;
    say!("histories  {histories} in {seconds:.1} s, seeds from {}", arguments.seeds.0);
    say!(
        "moves      {} moved, {} kept by their source, {} refused, {} lost with their node",
        total.moved,
        total.kept,
        total.refused,
        total.lost
    );
    say!("messages   {} turns, {} requests answered", total.turns, total.answered);
    say!("rate       {:.0} inputs/s, {:.0} moves/s", total.events as f64 / seconds, total.moved as f64 / seconds);
    for (fault, count) in &total.made {
        say!("           {count:>10} {fault}");
    }
    say!("verdict    good: no oracle spoke");
    if arguments.json {
        let line = serde_json::json!({
            "histories": histories, "moved": total.moved, "kept_source": total.kept, "refused": total.refused,
            "lost": total.lost, "turns": total.turns, "answered": total.answered, "inputs": total.events,
            "faults": total.made, "seconds": took.as_secs_f64(),
        });
        say!("{line}");
    }
}

/// Whether a line of a trace tells a reader anything: what every record and second brings with it does not.
fn tells(line: &str) -> bool {
    !["<- Tick", "<- Sent {", " Ack {", "Event(Ignored", "-> Progress"].iter().any(|noise| line.contains(noise))
}

/// Makes a failure small, writes it down and shows it.
fn report(arguments: &SimulateArgs, failed: &Failed) -> Failure {
    let Failed { profile, seed, said, kind: wanted } = failed;
    let acts = arguments.acts;
    say!("profile {}, seed {seed}, {acts} actions: {said}", profile.name);
    let again = format!(
        "rehome simulate --profile {} --seeds {seed}..{} --acts {acts} finds it again",
        profile.name,
        seed.saturating_add(1)
    );
    // Another history of the same seed, or a panic: there is nothing to make small.
    if wanted.as_deref().is_none_or(|kind| kind == "panic") {
        say!("{again}");
        return Failure::Verdict;
    }
    let script = script_of(*profile, *seed, acts);
    say!("making it small: {} choices, {} things that happen", script.choices.len(), script.hits());
    let small = shrink(script, arguments.tries, |script| {
        catch_unwind(|| run_script(*profile, script, 0)).is_ok_and(|summary| kind(&summary) == *wanted)
    });
    let shown = run_script(*profile, &small, 400);
    say!("small: {} actions, {} choices, {} things that happen", small.acts, small.choices.len(), small.hits());
    for line in shown.tail.lines().filter(|line| tells(line)) {
        say!("{line}");
    }
    for fault in &shown.faults {
        say!("{fault}");
    }
    let recorded = Recorded {
        version: 1,
        profile: profile.name.to_owned(),
        seed: *seed,
        seed_acts: acts,
        fault: shown.faults.first().cloned().unwrap_or_default(),
        acts: small.acts,
        choices: small
            .choices
            .iter()
            .map(|choice| match choice {
                Choice::Hit(false) => None,
                Choice::Hit(true) => Some(Pick::Hit(true)),
                Choice::Pick(value) => Some(Pick::Number(*value)),
            })
            .collect(),
    };
    match serde_json::to_string(&recorded).map(|json| std::fs::write(&arguments.out, json + "\n")) {
        Ok(Ok(())) => say!("rehome replay {} shows it again", arguments.out.display()),
        Ok(Err(error)) => say!("{}: {error}", arguments.out.display()),
        Err(error) => say!("{error}"),
    }
    say!("{again}");
    Failure::Verdict
}

fn read(path: &Path) -> Result<(Profile, Script, Recorded), Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let mut recorded: Recorded =
        serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name} is no history: {error}")))?;
    if recorded.version != 1 {
        return Err(Failure::usage(format!("{name} has version {}, this program knows 1", recorded.version)));
    }
    let choices = core::mem::take(&mut recorded.choices)
        .into_iter()
        .map(|pick| match pick {
            None => Choice::Hit(false),
            Some(Pick::Hit(hit)) => Choice::Hit(hit),
            Some(Pick::Number(value)) => Choice::Pick(value),
        })
        .collect();
    Ok((profile(&recorded.profile)?, Script { acts: recorded.acts, choices }, recorded))
}

pub(crate) fn replay(arguments: &ReplayArgs) -> Result<(), Failure> {
    let (profile, script, recorded) = read(&arguments.file)?;
    let shown = run_script(profile, &script, arguments.last.unwrap_or(usize::MAX));
    let mut lines = std::io::stdin().lock().lines();
    for line in shown.tail.lines() {
        say!("{line}");
        if arguments.step && lines.next().is_none() {
            return Ok(());
        }
    }
    let mut said = String::new();
    for fault in &shown.faults {
        let _ = writeln!(said, "{fault}");
    }
    if said.is_empty() {
        say!("no oracle speaks; when it was written: {}", recorded.fault);
        return Ok(());
    }
    say!("{}", said.trim_end());
    Err(Failure::Verdict)
}
