//! The logical stream: what a move carries of a unit, as one sequence of bytes that is cut into chunks. Encoding
//! borrows the states and need not run over their bytes again where their checksum is known; decoding takes the stream
//! at any cut and hands a state's bytes out in the pieces in which they came. Never compares a stream with the move
//! that it belongs to.

use super::error::{DecodeError, DecodeErrorKind, EncodeError};
use super::reader::{Read, Reader};
use super::record::FrozenRecord;
use super::writer::Writer;
use crate::fence::ObjectIdentity;
use crate::id::{ParticipantId, RelocationId, Text8};
use crate::rope::Rope;
use crate::state::Captured;
use crate::time::UnixMillis;
use bytes::Bytes;

/// From this many bytes on, combining two checksums (20 to 40 microseconds) is cheaper than running over the bytes.
const COMBINE_FROM: usize = 512 * 1024;

/// Everything that the logical stream of one move holds. Every vector is sorted and unique by its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamContents {
    /// The move.
    pub relocation: RelocationId,
    /// The unit's object.
    pub object: ObjectIdentity,
    /// The application's version of its state format.
    pub application_version: i64,
    /// The states, by participant.
    pub states: Vec<ApplicationState>,
    /// Work accepted and not yet run, by participant and order.
    pub work: Vec<SavedWork>,
    /// Timers, by participant and name.
    pub timers: Vec<TimerRegistration>,
    /// Ticks due and not yet run, by participant and order.
    pub ticks: Vec<PendingTick>,
}

/// One participant's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationState {
    /// Whose.
    pub participant: ParticipantId,
    /// The state; `None` for a participant that has none, which is not the same as an empty one.
    pub state: Option<SavedState>,
}

/// A state's bytes, and their CRC-32C where it is known. Two are equal if their bytes are.
#[derive(Clone, Debug)]
pub struct SavedState {
    /// The bytes.
    pub rope: Rope,
    /// Their CRC-32C, if it was computed while they were written. A wrong one makes the checksum of the whole stream
    /// wrong, and the target refuses the move.
    pub crc: Option<u32>,
}

impl PartialEq for SavedState {
    fn eq(&self, other: &Self) -> bool {
        self.rope == other.rope
    }
}

impl Eq for SavedState {}

impl core::hash::Hash for SavedState {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.rope.hash(state);
    }
}

impl From<Rope> for SavedState {
    fn from(rope: Rope) -> Self {
        Self { rope, crc: None }
    }
}

impl From<Captured> for SavedState {
    fn from(captured: Captured) -> Self {
        Self { rope: captured.rope, crc: Some(captured.crc) }
    }
}

/// One message that had been accepted and not yet run when the unit was captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SavedWork {
    /// Whose.
    pub participant: ParticipantId,
    /// Its place among the participant's saved work and pending ticks, which share one strictly increasing order.
    pub order: u64,
    /// The message. Of the kinds that are not run here only 7 can be kept: no other says where it ends.
    pub record: FrozenRecord,
}

/// One timer of a participant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimerRegistration {
    /// Whose.
    pub participant: ParticipantId,
    /// Its name, unique for the participant.
    pub name: Text8,
    /// Names what runs at each tick.
    pub handler: Text8,
    /// Milliseconds between two ticks.
    pub period_ms: u64,
    /// What becomes of ticks that are late.
    pub overrun: OverrunPolicy,
    /// The most late ticks that are made up for.
    pub max_catch_up: u64,
    /// Whether the timer ends when its handler fails.
    pub stop_on_error: bool,
    /// The index of the last tick that was delivered.
    pub last_delivery: u64,
    /// The index of the last tick that was scheduled.
    pub last_scheduled: u64,
    /// When the next tick is due.
    pub next: UnixMillis,
}

/// What becomes of ticks that are late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverrunPolicy {
    /// 1: they are skipped.
    SkipLate,
    /// 2: they are made up for, up to a bound.
    BoundedCatchUp,
    /// 3: the next one moves.
    DelayNext,
}

/// One tick that was due and not yet run when the unit was captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingTick {
    /// Whose.
    pub participant: ParticipantId,
    /// Its place: see [`SavedWork::order`].
    pub order: u64,
    /// The timer's name.
    pub timer: Text8,
    /// The tick's index among those delivered.
    pub delivery: u64,
    /// Its index among those scheduled.
    pub scheduled: u64,
    /// When it was due.
    pub due: UnixMillis,
    /// Ticks that were skipped before it.
    pub skipped: u64,
}

/// The stream and its checksum as they are built.
#[derive(Default)]
struct Sealed {
    rope: Rope,
    crc: u32,
}

impl Sealed {
    fn add(&mut self, part: Rope) {
        for piece in part.pieces() {
            self.crc = crc32c::crc32c_append(self.crc, piece);
        }
        self.rope.append(part);
    }

    fn add_known(&mut self, part: Rope, crc: u32) {
        self.crc = crc32c::crc32c_combine(self.crc, crc, part.len());
        self.rope.append(part);
    }
}

/// The stream of `contents` and its CRC-32C. States of 1 KiB and more are not copied; large ones whose checksum is
/// known are not read.
///
/// # Errors
/// A vector that is not sorted and unique by its keys, an order used twice by one participant, or a record that is
/// outside its bounds.
pub fn encode_stream(contents: &StreamContents) -> Result<(Rope, u32), EncodeError> {
    check_order("application states", contents.states.iter().map(|state| state.participant))?;
    check_order("saved work", contents.work.iter().map(SavedWork::key))?;
    check_order("timers", contents.timers.iter().map(|timer| (timer.participant, &timer.name)))?;
    check_order("pending ticks", contents.ticks.iter().map(PendingTick::key))?;
    if contents.ticks.iter().any(|tick| is_taken(&contents.work, tick.key())) {
        return Err(EncodeError::Unsorted { field: "pending ticks" });
    }
    let mut out = Sealed::default();
    let mut writer = Writer::new(0);
    writer.u128(contents.relocation.get());
    writer.object(&contents.object);
    writer.u64(contents.application_version.cast_unsigned());

    writer.length32(contents.states.len(), usize::MAX, "application states")?;
    for ApplicationState { participant, state } in &contents.states {
        writer.u64(participant.0);
        let Some(state) = state else {
            writer.u8(0);
            writer.u64(0);
            continue;
        };
        let len = state.rope.len() as u64;
        writer.u8(1);
        writer.u64(len.saturating_add(8));
        writer.u64(len);
        match state.crc {
            Some(crc) if state.rope.len() >= COMBINE_FROM => {
                out.add(writer.take());
                out.add_known(state.rope.clone(), crc);
            }
            Some(_) | None => writer.payload_rope(&state.rope),
        }
    }
    writer.length32(contents.work.len(), usize::MAX, "saved work")?;
    for work in &contents.work {
        writer.u64(work.participant.0);
        writer.u64(work.order);
        writer.inner_frozen(&work.record)?;
    }
    writer.length32(contents.timers.len(), usize::MAX, "timers")?;
    for timer in &contents.timers {
        writer.timer(timer);
    }
    writer.length32(contents.ticks.len(), usize::MAX, "pending ticks")?;
    for tick in &contents.ticks {
        writer.tick(tick);
    }
    out.add(writer.finish());
    Ok((out.rope, out.crc))
}

fn check_order<K: PartialOrd>(field: &'static str, keys: impl Iterator<Item = K>) -> Result<(), EncodeError> {
    if keys.is_sorted_by(|a, b| a < b) { Ok(()) } else { Err(EncodeError::Unsorted { field }) }
}

/// Whether saved work has the place `key` already.
fn is_taken(work: &[SavedWork], key: (ParticipantId, u64)) -> bool {
    work.binary_search_by(|work| work.key().cmp(&key)).is_ok()
}

impl SavedWork {
    const fn key(&self) -> (ParticipantId, u64) {
        (self.participant, self.order)
    }
}

impl PendingTick {
    const fn key(&self) -> (ParticipantId, u64) {
        (self.participant, self.order)
    }
}

impl Writer {
    fn timer(&mut self, timer: &TimerRegistration) {
        self.u64(timer.participant.0);
        self.text8(&timer.name);
        self.text8(&timer.handler);
        self.u64(timer.period_ms);
        self.u8(match timer.overrun {
            OverrunPolicy::SkipLate => 1,
            OverrunPolicy::BoundedCatchUp => 2,
            OverrunPolicy::DelayNext => 3,
        });
        self.u64(timer.max_catch_up);
        self.u8(u8::from(timer.stop_on_error));
        self.u64(timer.last_delivery);
        self.u64(timer.last_scheduled);
        self.u64(timer.next.0);
    }

    fn tick(&mut self, tick: &PendingTick) {
        self.u64(tick.participant.0);
        self.u64(tick.order);
        self.text8(&tick.timer);
        self.u64(tick.delivery);
        self.u64(tick.scheduled);
        self.u64(tick.due.0);
        self.u64(tick.skipped);
    }
}

/// What a state's head says.
struct StateHead {
    participant: ParticipantId,
    /// Bytes of the state; `None` where there is no state.
    len: Option<u64>,
}

impl Reader {
    fn participant(&mut self) -> Read<ParticipantId> {
        self.u64("participant").map(ParticipantId)
    }

    fn state_head(&mut self) -> Read<StateHead> {
        let participant = self.participant()?;
        let has = self.flag("has state")?;
        let at = self.offset();
        let case = self.u64("state case length")?;
        if !has {
            return if case == 0 {
                Ok(StateHead { participant, len: None })
            } else {
                Err(Self::invalid(at, "state case length"))
            };
        }
        let at = self.offset();
        let len = self.u64("state length")?;
        if len.checked_add(8) != Some(case) {
            return Err(Self::invalid(at, "state length"));
        }
        Ok(StateHead { participant, len: Some(len) })
    }

    fn work(&mut self) -> Read<SavedWork> {
        let participant = self.participant()?;
        let order = self.u64("order")?;
        Ok(SavedWork { participant, order, record: self.inner_frozen()? })
    }

    fn timer(&mut self) -> Read<TimerRegistration> {
        let participant = self.participant()?;
        let name = self.text8("timer name")?;
        let handler = self.text8("handler type")?;
        let period_ms = self.u64("period")?;
        let at = self.offset();
        let overrun = match self.u8("overrun policy")? {
            1 => OverrunPolicy::SkipLate,
            2 => OverrunPolicy::BoundedCatchUp,
            3 => OverrunPolicy::DelayNext,
            _ => return Err(Self::invalid(at, "overrun policy")),
        };
        let max_catch_up = self.u64("max catch-up")?;
        let stop_on_error = self.flag("stop on error")?;
        let last_delivery = self.u64("last delivery index")?;
        let last_scheduled = self.u64("last scheduled index")?;
        let next = UnixMillis(self.u64("next tick")?);
        Ok(TimerRegistration {
            participant,
            name,
            handler,
            period_ms,
            overrun,
            max_catch_up,
            stop_on_error,
            last_delivery,
            last_scheduled,
            next,
        })
    }

    fn tick(&mut self) -> Read<PendingTick> {
        let participant = self.participant()?;
        let order = self.u64("order")?;
        let timer = self.text8("timer name")?;
        let delivery = self.u64("delivery index")?;
        let scheduled = self.u64("scheduled index")?;
        let due = UnixMillis(self.u64("scheduled time")?);
        Ok(PendingTick { participant, order, timer, delivery, scheduled, due, skipped: self.u64("skipped ticks")? })
    }
}

/// Where the decoder is. The counts are of elements still to come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Head,
    States(u32),
    StateBytes { participant: ParticipantId, missing: u64, rope: Rope, states_left: u32 },
    Work(u32),
    Timers(u32),
    Ticks(u32),
    Done,
    Failed(DecodeError),
}

/// Reads a logical stream as it arrives. Holds what was decoded and at most one unfinished element; a state's bytes, and
/// the ids and payloads of saved work, are slices of what was fed and keep it in memory. Nothing is allocated for a
/// length or count before its bytes are there. The total is not bounded here: whoever feeds it knows how much was
/// announced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamDecoder {
    pending: Rope,
    /// Bytes of the stream before `pending`.
    consumed: usize,
    /// How much of the next element must be there before it is worth trying again.
    want: usize,
    phase: Phase,
    contents: Option<StreamContents>,
}

impl Default for StreamDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamDecoder {
    /// A decoder at the start of a stream.
    pub const fn new() -> Self {
        Self { pending: Rope::new(), consumed: 0, want: 0, phase: Phase::Head, contents: None }
    }

    /// Takes the next bytes of the stream, cut anywhere.
    ///
    /// # Errors
    /// Where the stream is not valid; every later call gives the same error.
    pub fn feed(&mut self, bytes: Bytes) -> Result<(), DecodeError> {
        self.pending.push(bytes);
        let result = loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = result {
            self.pending = Rope::new();
            self.contents = None;
            self.phase = Phase::Failed(error);
        }
        result
    }

    /// The same for all pieces of `rope`.
    ///
    /// # Errors
    /// As [`StreamDecoder::feed`].
    pub fn feed_rope(&mut self, mut rope: Rope) -> Result<(), DecodeError> {
        while let Some(piece) = rope.pop() {
            self.feed(piece)?;
        }
        Ok(())
    }

    /// Bytes fed so far.
    pub fn fed(&self) -> usize {
        self.consumed.saturating_add(self.pending.len())
    }

    /// The contents, once all bytes have been fed.
    ///
    /// # Errors
    /// The stream is not valid, or not complete.
    pub fn finish(self) -> Result<StreamContents, DecodeError> {
        let offset = self.fed();
        let truncated = |field| Err(Reader::error(offset, DecodeErrorKind::TruncatedField, field));
        match (self.phase, self.contents) {
            (Phase::Done, Some(contents)) => Ok(contents),
            (Phase::Failed(error), _) => Err(error),
            (Phase::Head | Phase::Done, _) => truncated("stream head"),
            (Phase::States(_), _) => truncated("application states"),
            (Phase::StateBytes { .. }, _) => truncated("state"),
            (Phase::Work(_), _) => truncated("saved work"),
            (Phase::Timers(_), _) => truncated("timers"),
            (Phase::Ticks(_), _) => truncated("pending ticks"),
        }
    }

    /// Reads one element, if all of it is there.
    fn read<T>(&mut self, element: impl FnOnce(&mut Reader) -> Read<T>) -> Result<Option<T>, DecodeError> {
        if self.pending.is_empty() || self.pending.len() < self.want {
            return Ok(None);
        }
        let mut reader = Reader::partial(self.pending.clone());
        match (element(&mut reader), reader.want()) {
            (Ok(value), _) => {
                self.consumed = self.consumed.saturating_add(reader.offset());
                self.pending = reader.into_rest();
                self.want = 0;
                Ok(Some(value))
            }
            (Err(_), Some(want)) => {
                self.want = want;
                Ok(None)
            }
            (Err(error), None) => Err(DecodeError { offset: error.offset.saturating_add(self.consumed), ..error }),
        }
    }

    /// Reads the next element; `false` if it is not there yet.
    fn step(&mut self) -> Result<bool, DecodeError> {
        let at = self.consumed;
        let unsorted = |field| Err(Reader::invalid(at, field));
        let next = match &mut self.phase {
            Phase::Failed(error) => return Err(*error),
            Phase::Done => {
                return if self.pending.is_empty() {
                    Ok(false)
                } else {
                    Err(Reader::error(at, DecodeErrorKind::TrailingByte, "end"))
                };
            }
            Phase::StateBytes { participant, missing, rope, states_left } => {
                let most = usize::try_from(*missing).unwrap_or(usize::MAX);
                let part = self.pending.split_to(most);
                self.consumed = self.consumed.saturating_add(part.len());
                *missing = missing.saturating_sub(part.len() as u64);
                rope.append(part);
                if *missing > 0 {
                    return Ok(false);
                }
                let state = Some(SavedState::from(core::mem::take(rope)));
                let (participant, left) = (*participant, *states_left);
                if let Some(contents) = &mut self.contents {
                    contents.states.push(ApplicationState { participant, state });
                }
                Phase::States(left)
            }
            Phase::Head => {
                let head = self.read(|r| {
                    let relocation = r.relocation()?;
                    let object = r.object()?;
                    let application_version = r.u64("application version")?.cast_signed();
                    let (states, work, timers, ticks) = Default::default();
                    let contents =
                        StreamContents { relocation, object, application_version, states, work, timers, ticks };
                    Ok((contents, r.u32("application states")?))
                })?;
                let Some((contents, states)) = head else { return Ok(false) };
                self.contents = Some(contents);
                Phase::States(states)
            }
            Phase::States(0) => match self.read(|r| r.u32("saved work"))? {
                Some(count) => Phase::Work(count),
                None => return Ok(false),
            },
            Phase::Work(0) => match self.read(|r| r.u32("timers"))? {
                Some(count) => Phase::Timers(count),
                None => return Ok(false),
            },
            Phase::Timers(0) => match self.read(|r| r.u32("pending ticks"))? {
                Some(count) => Phase::Ticks(count),
                None => return Ok(false),
            },
            Phase::Ticks(0) => Phase::Done,
            Phase::States(left) => {
                let states_left = left.saturating_sub(1);
                let Some(StateHead { participant, len }) = self.read(Reader::state_head)? else { return Ok(false) };
                let Some(contents) = &mut self.contents else { return Ok(false) };
                if contents.states.last().is_some_and(|last| last.participant >= participant) {
                    return unsorted("application states");
                }
                match len {
                    Some(missing) => Phase::StateBytes { participant, missing, rope: Rope::new(), states_left },
                    None => {
                        contents.states.push(ApplicationState { participant, state: None });
                        Phase::States(states_left)
                    }
                }
            }
            Phase::Work(left) => {
                let left = left.saturating_sub(1);
                let Some(work) = self.read(Reader::work)? else { return Ok(false) };
                let Some(contents) = &mut self.contents else { return Ok(false) };
                if contents.work.last().is_some_and(|last| last.key() >= work.key()) {
                    return unsorted("saved work");
                }
                contents.work.push(work);
                Phase::Work(left)
            }
            Phase::Timers(left) => {
                let left = left.saturating_sub(1);
                let Some(timer) = self.read(Reader::timer)? else { return Ok(false) };
                let Some(contents) = &mut self.contents else { return Ok(false) };
                let key = (timer.participant, &timer.name);
                if contents.timers.last().is_some_and(|last| (last.participant, &last.name) >= key) {
                    return unsorted("timers");
                }
                contents.timers.push(timer);
                Phase::Timers(left)
            }
            Phase::Ticks(left) => {
                let left = left.saturating_sub(1);
                let Some(tick) = self.read(Reader::tick)? else { return Ok(false) };
                let Some(contents) = &mut self.contents else { return Ok(false) };
                let repeated = contents.ticks.last().is_some_and(|last| last.key() >= tick.key());
                if repeated || is_taken(&contents.work, tick.key()) {
                    return unsorted("pending ticks");
                }
                contents.ticks.push(tick);
                Phase::Ticks(left)
            }
        };
        self.phase = next;
        Ok(true)
    }
}
