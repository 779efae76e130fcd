//! An object that does what a message tells it, and hosts that offer it. Every wait has a generous bound that only a
//! hang meets.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use bytes::Bytes;
use rehome::fence::ObjectKey;
use rehome::id::{ObjectId, RoutingId};
use rehome::node::{Activation, CallError, Limits, MoveOutcome, RefusedReason, TypeConfig};
use rehome::state::{StateReader, StateWriter};
use rehome::wire::Payload;
use rehome_stores::Memory;
use rehome_tokio::{Activate, HandlerError, Host, HostBuilder, Object, ObjectError, Reply, TurnContext, payload};
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

pub const HANG: Duration = Duration::from_secs(60);
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What the objects of one host share with the test.
pub struct Shared {
    /// How often each hook ran.
    pub started: AtomicU64,
    pub restoring: AtomicU64,
    pub resumed: AtomicU64,
    pub retired: AtomicU64,
    pub reclaimed: AtomicU64,
    pub tokens: Mutex<Vec<rehome::node::ReplyToken>>,
    /// Each numbered message that ran, in the order of the turns.
    pub log: Arc<Mutex<Vec<(u8, u64)>>>,
    /// While false, that hook waits.
    pub handle_gate: watch::Sender<bool>,
    pub restore_gate: watch::Sender<bool>,
    pub resume_gate: watch::Sender<bool>,
}

impl Default for Shared {
    fn default() -> Self {
        let open = || watch::Sender::new(true);
        Self {
            started: AtomicU64::new(0),
            restoring: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            tokens: Mutex::default(),
            log: Arc::default(),
            handle_gate: open(),
            restore_gate: open(),
            resume_gate: open(),
        }
    }
}

async fn pass(gate: &watch::Sender<bool>) {
    gate.subscribe().wait_for(|open| *open).await.expect("the test holds the gate");
}

/// Waits until something that other tasks bring about is so.
pub async fn until(so: impl Fn() -> bool) {
    while !so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub struct Probe {
    shared: Arc<Shared>,
    count: u64,
    ballast: Bytes,
}

/// Panics where the handler's future is dropped.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("as asked");
    }
}

impl Object for Probe {
    type Shared = Shared;

    async fn activate(shared: &Arc<Shared>, activation: Activate<'_>) -> Result<Self, ObjectError> {
        if activation.arguments.as_ref() == b"refuse" {
            return Err(ObjectError(String::from("not today")));
        }
        if activation.cause == Activation::Reclaimed {
            shared.reclaimed.fetch_add(1, Ordering::SeqCst);
        }
        let length = std::str::from_utf8(activation.arguments).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Self { shared: Arc::clone(shared), count: 0, ballast: vec![7u8; length].into() })
    }

    async fn handle(&mut self, turn: &mut TurnContext, message: Payload) -> Result<Reply, HandlerError> {
        self.count += 1;
        self.shared.started.fetch_add(1, Ordering::SeqCst);
        match message.name.as_str() {
            "panic" => panic!("as asked"),
            "fail" => return Err(HandlerError { code: 1234, detail: String::from("as asked") }),
            "gated" => pass(&self.shared.handle_gate).await,
            "numbered" => {
                let (sender, number) = message.bytes.split_first().expect("a sender");
                let number = u64::from_be_bytes(number.try_into().expect("a number"));
                self.shared.log.lock().expect("no panic").push((*sender, number));
            }
            "until_stopped" => {
                turn.stopped().await;
                assert!(turn.must_stop());
            }
            "panic_when_dropped" => {
                let _bomb = PanicsWhenDropped;
                std::future::pending::<()>().await;
            }
            "large" => return Ok(Reply::Answer(payload("large", vec![0; (16 << 20) + 1])?)),
            "sleep" => tokio::time::sleep(Duration::from_secs(3600)).await,
            "later" => {
                self.shared.tokens.lock().expect("no panic").extend(turn.reply_token.clone());
                return Ok(Reply::Later);
            }
            "move" => turn.move_me(RoutingId::new(message.bytes.clone()).expect("a routing id")),
            "delete" => turn.delete_me(),
            _ => {}
        }
        let token = turn.token.owner_generation.get();
        Ok(Reply::Answer(payload("count", format!("{} {token}", self.count)).expect("a name")))
    }

    fn size_hint(&self) -> u64 {
        self.ballast.len() as u64 + 8
    }

    fn capture(&self, state: &mut StateWriter) -> Result<(), ObjectError> {
        state.write(&self.count.to_be_bytes());
        state.push(self.ballast.clone());
        Ok(())
    }

    async fn restore(shared: &Arc<Shared>, _: i64, mut state: StateReader) -> Result<Self, ObjectError> {
        shared.restoring.fetch_add(1, Ordering::SeqCst);
        pass(&shared.restore_gate).await;
        let mut count = [0; 8];
        state.read_exact(&mut count)?;
        let mut ballast = Vec::with_capacity(state.remaining());
        while let Some(piece) = state.chunk() {
            ballast.extend_from_slice(&piece);
        }
        Ok(Self { shared: Arc::clone(shared), count: u64::from_be_bytes(count), ballast: ballast.into() })
    }

    async fn resumed(&mut self) {
        pass(&self.shared.resume_gate).await;
        self.shared.resumed.fetch_add(1, Ordering::SeqCst);
    }

    async fn retired(self) {
        self.shared.retired.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn key() -> ObjectKey {
    ObjectKey::actor(ObjectId::new("probe").expect("an id"))
}

pub struct Pair {
    pub left: Host,
    pub right: Host,
    pub left_shared: Arc<Shared>,
    pub right_shared: Arc<Shared>,
}

pub async fn pair_with(config: TypeConfig, with: impl Fn(HostBuilder) -> HostBuilder) -> Pair {
    let store = Arc::new(Memory::new());
    let left_shared = Arc::new(Shared::default());
    let right_shared = Arc::new(Shared { log: Arc::clone(&left_shared.log), ..Shared::default() });
    let builder = |name: &str, shared: &Arc<Shared>| {
        let builder = with(HostBuilder::new(name, "test").expect("a name"));
        builder.object_shared::<Probe>("probe", config, Arc::clone(shared)).expect("a name")
    };
    let left = builder("left", &left_shared).listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let address = left.local_addr().expect("an address");
    let left = left.start(store.clone()).await.expect("it starts");
    let right = builder("right", &right_shared).peer(address).start(store).await.expect("it starts");
    let pair = Pair { left, right, left_shared, right_shared };
    assert!(pair.left.met(&rid("right")).await && pair.right.met(&rid("left")).await);
    pair
}

pub async fn pair_of(config: TypeConfig, turn_limit: Option<Duration>) -> Pair {
    let with = |builder: HostBuilder| match turn_limit {
        Some(limit) => builder.turn_limit(limit),
        None => builder,
    };
    pair_with(config, with).await
}

pub async fn pair_within(limits: Limits) -> Pair {
    pair_with(TypeConfig::default(), |builder| builder.limits(limits)).await
}

pub async fn pair() -> Pair {
    pair_of(TypeConfig::default(), None).await
}

impl Pair {
    pub async fn create(&self) {
        self.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
    }

    pub async fn move_right(&self) -> MoveOutcome {
        let target = RoutingId::new("right").expect("an id");
        self.left.relocate(key(), target, None).await.outcome().await.expect("an outcome")
    }
}

/// Moves the object. A source may know that its move is settled before its target has looked and opened: until then the
/// object cannot be moved on.
pub async fn move_to(from: &Host, to: &str) {
    loop {
        match from.relocate(key(), rid(to), None).await.outcome().await {
            Ok(MoveOutcome::Moved { .. }) => return,
            Ok(MoveOutcome::Refused(RefusedReason::NotMovable)) => tokio::time::sleep(Duration::from_millis(1)).await,
            other => panic!("{other:?}"),
        }
    }
}

pub fn rid(name: &str) -> RoutingId {
    RoutingId::new(name.as_bytes().to_vec()).expect("an id")
}

pub fn message(name: &str) -> Payload {
    payload(name, "").expect("a name")
}

pub fn numbered(sender: u8, number: u64) -> Payload {
    let bytes: Vec<u8> = [sender].into_iter().chain(number.to_be_bytes()).collect();
    payload("numbered", bytes).expect("a name")
}

pub async fn ask(host: &Host, name: &str, bytes: &'static str) -> Result<String, CallError> {
    let answer = host.request(key(), payload(name, bytes).expect("a name"), PATIENCE).await?;
    Ok(String::from_utf8_lossy(&answer.bytes).into_owned())
}

pub fn within<F: Future<Output = ()>>(test: F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("the test hangs") });
}
