//! Real hosts over loopback sockets. Every wait has a generous bound that only a hang meets.

use bytes::Bytes;
use rehome::fence::ObjectKey;
use rehome::id::{ObjectId, RoutingId};
use rehome::node::{Activation, CallError, MoveOutcome, NotRun, Policy, RefusedReason, Stage, TypeConfig};
use rehome::state::{StateReader, StateWriter};
use rehome::wire::{Outcome, Payload};
use rehome_stores::Memory;
use rehome_tokio::{Activate, HandlerError, Host, HostBuilder, Object, ObjectError, Reply, TurnContext, payload};
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HANG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Shared {
    resumed: AtomicU64,
    retired: AtomicU64,
    reclaimed: AtomicU64,
    tokens: Mutex<Vec<rehome::node::ReplyToken>>,
}

struct Probe {
    shared: Arc<Shared>,
    count: u64,
    ballast: Bytes,
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
        match message.name.as_str() {
            "panic" => panic!("as asked"),
            "fail" => return Err(HandlerError { code: 1234, detail: String::from("as asked") }),
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
        let mut count = [0; 8];
        state.read_exact(&mut count).map_err(|error| ObjectError(error.to_string()))?;
        let mut ballast = Vec::with_capacity(state.remaining());
        while let Some(piece) = state.chunk() {
            ballast.extend_from_slice(&piece);
        }
        Ok(Self { shared: Arc::clone(shared), count: u64::from_be_bytes(count), ballast: ballast.into() })
    }

    async fn resumed(&mut self) {
        self.shared.resumed.fetch_add(1, Ordering::SeqCst);
    }

    async fn retired(self) {
        self.shared.retired.fetch_add(1, Ordering::SeqCst);
    }
}

fn key() -> ObjectKey {
    ObjectKey::actor(ObjectId::new("probe").expect("an id"))
}

struct Pair {
    left: Host,
    right: Host,
    left_shared: Arc<Shared>,
    right_shared: Arc<Shared>,
}

async fn pair_of(config: TypeConfig, turn_limit: Option<Duration>) -> Pair {
    let store = Arc::new(Memory::new());
    let (left_shared, right_shared) = (Arc::new(Shared::default()), Arc::new(Shared::default()));
    let builder = |name: &str, shared: &Arc<Shared>| {
        let builder = HostBuilder::new(name, "test").expect("a name");
        let builder = match turn_limit {
            Some(limit) => builder.turn_limit(limit),
            None => builder,
        };
        builder.object_shared::<Probe>("probe", config, Arc::clone(shared)).expect("a name")
    };
    let left = builder("left", &left_shared).listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let address = left.local_addr().expect("an address");
    let left = left.start(store.clone()).await.expect("it starts");
    let right = builder("right", &right_shared).peer(address).start(store).await.expect("it starts");
    let pair = Pair { left, right, left_shared, right_shared };
    pair.connected().await;
    pair
}

async fn pair() -> Pair {
    pair_of(TypeConfig::default(), None).await
}

impl Pair {
    /// A probe object answers through the other host: the two are connected.
    async fn connected(&self) {
        let canary = ObjectKey::actor(ObjectId::new("canary").expect("an id"));
        self.left.create(canary.clone(), "probe", Bytes::new()).await.expect("it is made");
        self.right.request(canary.clone(), payload("hit", "").expect("a name"), PATIENCE).await.expect("an answer");
        self.left.delete(canary).await.expect("it goes");
    }

    async fn move_right(&self) -> MoveOutcome {
        let target = RoutingId::new("right").expect("an id");
        self.left.relocate(key(), target, None).await.outcome().await.expect("an outcome")
    }
}

async fn ask(host: &Host, name: &str, bytes: &'static str) -> Result<String, CallError> {
    let answer = host.request(key(), payload(name, bytes).expect("a name"), PATIENCE).await?;
    Ok(String::from_utf8_lossy(&answer.bytes).into_owned())
}

fn within<F: Future<Output = ()>>(test: F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("the test hangs") });
}

#[test]
fn an_object_moves_under_traffic_and_every_sender_keeps_its_order() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        let traffic = |host: Host| async move {
            let mut last = 0;
            for _ in 0..500 {
                let count = ask(&host, "hit", "").await.expect("an answer");
                let count: u64 = count.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
                assert!(count > last);
                last = count;
            }
        };
        let (one, two) = (tokio::spawn(traffic(pair.left.clone())), tokio::spawn(traffic(pair.right.clone())));
        for _ in 0..5 {
            let target = |name: &str| RoutingId::new(name.as_bytes().to_vec()).expect("an id");
            let there = pair.left.relocate(key(), target("right"), None).await.outcome().await.expect("an outcome");
            assert!(matches!(there, MoveOutcome::Moved { .. }), "{there:?}");
            let back = pair.right.relocate(key(), target("left"), None).await.outcome().await.expect("an outcome");
            assert!(matches!(back, MoveOutcome::Moved { .. }), "{back:?}");
        }
        one.await.expect("no panic");
        two.await.expect("no panic");
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "1001 11");
        assert_eq!(pair.left_shared.resumed.load(Ordering::SeqCst), 5);
        assert_eq!(pair.right_shared.retired.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn a_panic_is_the_error_of_one_request() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(ask(&pair.right, "panic", "").await, Err(CallError::Panicked));
        let failed = CallError::Handler { failure: 1234, detail: String::from("as asked") };
        assert_eq!(ask(&pair.right, "fail", "").await, Err(failed));
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "3 1");
    });
}

#[test]
fn a_turn_over_its_limit_ends_and_stalls_nobody() {
    within(async {
        let pair = pair_of(TypeConfig::default(), Some(Duration::from_millis(100))).await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(ask(&pair.right, "sleep", "").await, Err(CallError::Timeout));
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "2 1");
    });
}

#[test]
fn a_turn_that_does_not_end_keeps_the_object_where_it_is() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        pair.left.send(key(), payload("sleep", "").expect("a name")).await.expect("accepted");
        // The object cannot even tell its size before the turn ends, so it is never stopped.
        let (target, timeout) = (RoutingId::new("right").expect("an id"), Some(Duration::from_millis(200)));
        let outcome = pair.left.relocate(key(), target, timeout).await.outcome().await;
        assert_eq!(outcome, Ok(MoveOutcome::Refused(RefusedReason::DeadlineExceeded)));
    });
}

#[test]
fn a_request_is_answered_later_from_the_other_side_of_a_move() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        let asker = pair.right.clone();
        let asked = tokio::spawn(async move { ask(&asker, "later", "").await });
        let token = loop {
            if let Some(token) = pair.left_shared.tokens.lock().expect("no panic").pop() {
                break token;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert!(matches!(pair.move_right().await, MoveOutcome::Moved { .. }));
        let answer = Outcome::Answer(payload("late", "here").expect("a name"));
        pair.left.reply(token, answer).await.expect("on its way");
        assert_eq!(asked.await.expect("no panic").expect("an answer"), "here");
    });
}

#[test]
fn an_object_asks_for_its_own_move_and_its_own_end() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        ask(&pair.left, "move", "right").await.expect("an answer");
        while pair.right.objects().await != [key()] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "2 2");
        ask(&pair.right, "delete", "").await.expect("an answer");
        while pair.left.locate(key()).await.expect("the store answers").is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ask(&pair.left, "hit", "").await, Err(CallError::NotRun(NotRun::NotFound)));
    });
}

#[test]
fn what_cannot_move_is_refused_before_it_stops() {
    within(async {
        let disabled = TypeConfig { policy: Policy::Disabled, ..TypeConfig::default() };
        let pair = pair_of(disabled, None).await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(pair.move_right().await, MoveOutcome::Refused(RefusedReason::Disabled));
        let nowhere = RoutingId::new("nowhere").expect("an id");
        let outcome = pair.left.relocate(key(), nowhere, None).await.outcome().await.expect("an outcome");
        assert!(matches!(outcome, MoveOutcome::Refused(_)), "{outcome:?}");
        let small = TypeConfig { state_limit: 10, ..TypeConfig::default() };
        let pair = pair_of(small, None).await;
        pair.left.create(key(), "probe", Bytes::from_static(b"100")).await.expect("it is made");
        assert_eq!(pair.move_right().await, MoveOutcome::Refused(RefusedReason::TooLarge));
    });
}

#[test]
fn a_policy_without_state_makes_a_fresh_object_at_the_target() {
    within(async {
        let pair = pair_of(TypeConfig { policy: Policy::Recreate, ..TypeConfig::default() }, None).await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "1 1");
        assert!(matches!(pair.move_right().await, MoveOutcome::Moved { .. }));
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "1 2");
    });
}

#[test]
fn creation_says_what_went_wrong() {
    within(async {
        let pair = pair().await;
        let refused = pair.left.create(key(), "probe", Bytes::from_static(b"refuse")).await;
        assert_eq!(refused, Err(CallError::ActivationFailed(String::from("not today"))));
        assert_eq!(pair.left.locate(key()).await, Ok(None), "nothing is left of it");
        assert!(matches!(pair.left.create(key(), "unheard of", Bytes::new()).await, Err(CallError::UnknownType(_))));
        assert!(pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made").new);
        assert_eq!(pair.right.create(key(), "probe", Bytes::new()).await, Err(CallError::AlreadyExists));
        let found = pair.right.get_or_create(key(), "probe", Bytes::new()).await.expect("it is there");
        assert!(!found.new && found.route.node == *pair.left.node());
        assert_eq!(pair.right.reclaim(key(), Bytes::new()).await, Err(CallError::OwnerAlive));
    });
}

#[test]
fn connections_that_are_cut_lose_nothing() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        let sender = pair.right.clone();
        let traffic = tokio::spawn(async move {
            for _ in 0..300 {
                sender.send(key(), payload("hit", "").expect("a name")).await.expect("accepted");
            }
        });
        while !traffic.is_finished() {
            pair.left.cut_connections().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        traffic.await.expect("no panic");
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "301 1");
    });
}

#[test]
fn an_orderly_shutdown_lets_another_host_take_over_at_once() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        pair.left.shutdown(Duration::from_secs(10)).await;
        assert_eq!(ask(&pair.left, "hit", "").await, Err(CallError::NotRun(NotRun::NotServing)));
        assert!(pair.right.reclaim(key(), Bytes::new()).await.expect("it is free").new);
        assert_eq!(pair.right_shared.reclaimed.load(Ordering::SeqCst), 1);
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "1 1");
    });
}

#[test]
fn a_large_object_moves_in_chunks_and_shows_its_stages() {
    within(async {
        let pair = pair_of(TypeConfig { state_limit: u64::MAX, ..TypeConfig::default() }, None).await;
        let length: usize = 64 << 20;
        pair.left.create(key(), "probe", Bytes::from(length.to_string())).await.expect("it is made");
        let mut moving = pair.left.relocate(key(), RoutingId::new("right").expect("an id"), None).await;
        let mut stages = Vec::new();
        while let Some(stage) = moving.stage().await {
            stages.push(stage);
        }
        assert!(matches!(moving.outcome().await, Ok(MoveOutcome::Moved { .. })));
        assert_eq!(stages.first(), Some(&Stage::Waiting));
        assert_eq!(stages.last(), Some(&Stage::Settling));
        let (held, counters) = pair.left.inspect().await.expect("it serves");
        assert!(counters.bytes > length as u64);
        assert_eq!((held.moves, held.budget_bytes), (0, 0));
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "1 2");
    });
}
