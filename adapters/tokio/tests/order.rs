//! The order of each sender, while the object goes back and forth: over loopback sockets, through a host that never
//! owns it.

mod common;

use bytes::Bytes;
use common::{PATIENCE, Probe, Shared, key, message, numbered, rid, until, within};
use futures_util::{StreamExt as _, stream};
use rehome::node::{MoveOutcome, TypeConfig};
use rehome_stores::Memory;
use rehome_tokio::HostBuilder;
use std::sync::Arc;
use tokio::task::JoinHandle;

const SENDERS: u8 = 8;
const EACH: u64 = 250;
/// Messages of one sender that are on their way at once.
const AHEAD: usize = 16;

#[test]
fn senders_at_a_third_host_keep_their_order_across_moves() {
    within(async {
        let store = Arc::new(Memory::new());
        let shared = Arc::new(Shared::default());
        let builder = |name: &str| {
            let builder = HostBuilder::new(name, "test").expect("a name");
            builder.object_shared::<Probe>("probe", TypeConfig::default(), Arc::clone(&shared)).expect("a name")
        };
        let anywhere = ([127, 0, 0, 1], 0).into();
        let left = builder("left").listen(anywhere).await.expect("a port");
        let left_address = left.local_addr().expect("an address");
        let left = left.start(store.clone()).await.expect("it starts");
        let right = builder("right").listen(anywhere).await.expect("a port").peer(left_address);
        let right_address = right.local_addr().expect("an address");
        let right = right.start(store.clone()).await.expect("it starts");
        let third = builder("third").peer(left_address).start(store).await.expect("it starts");
        third.add_peer(right_address);
        third.add_peer(right_address);
        for host in [&left, &right, &third] {
            for peer in ["left", "right", "third"].map(rid).iter().filter(|peer| **peer != host.node().rid) {
                assert!(host.met(peer).await);
            }
        }
        left.create(key(), "probe", Bytes::new()).await.expect("it is made");

        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let third = third.clone();
                tokio::spawn(async move {
                    let sends = stream::iter(0..EACH).map(|number| third.send(key(), numbered(sender, number)));
                    sends.buffered(AHEAD).for_each(async |sent| sent.expect("accepted")).await;
                })
            })
            .collect();
        let mut moves = 0;
        while senders.iter().any(|sender| !sender.is_finished()) || moves < 4 {
            let (from, to) = if moves % 2 == 0 { (&left, "right") } else { (&right, "left") };
            let ran = shared.log.lock().expect("no panic").len();
            let outcome = from.relocate(key(), rid(to), None).await.outcome().await;
            assert!(matches!(outcome, Ok(MoveOutcome::Moved { .. })), "{outcome:?}");
            moves += 1;
            // A message whose object moves on more than eight times before it arrives may lose its place.
            let all_sent = || senders.iter().all(JoinHandle::is_finished);
            until(|| all_sent() || shared.log.lock().expect("no panic").len() > ran + 2 * AHEAD * usize::from(SENDERS))
                .await;
        }
        assert!(moves > 4, "the senders were done before the object moved much");
        for sender in senders {
            sender.await.expect("no panic");
        }
        // What was accepted has run once this is answered: it is behind all of it at each of the hosts.
        third.request(key(), message("hit"), PATIENCE).await.expect("an answer");
        let log = shared.log.lock().expect("no panic").clone();
        assert_eq!(log.len(), usize::from(SENDERS) * 250, "each ran once");
        for sender in 0..SENDERS {
            let numbers: Vec<u64> = log.iter().filter(|(from, _)| *from == sender).map(|(_, number)| *number).collect();
            assert!(numbers.iter().copied().eq(0..EACH), "sender {sender}: {numbers:?}");
        }
    });
}
