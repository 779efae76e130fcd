//! The order of each sender, while the object goes back and forth: over loopback sockets, through a host that never
//! owns it.

mod common;

use bytes::Bytes;
use common::{PATIENCE, Probe, Shared, key, message, move_to, numbered, rid, until, within};
use futures_util::{StreamExt as _, stream};
use rehome::node::TypeConfig;
use rehome_stores::Memory;
use rehome_tokio::HostBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SENDERS: u8 = 8;
const MOVES: u32 = 20;
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

        let enough = Arc::new(AtomicBool::new(false));
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (third, enough) = (third.clone(), Arc::clone(&enough));
                tokio::spawn(async move {
                    let numbers = (0..).take_while(move |_| !enough.load(Ordering::SeqCst));
                    let sends = stream::iter(numbers).map(|number| third.send(key(), numbered(sender, number)));
                    sends
                        .buffered(AHEAD)
                        .fold(0u64, async |sent, result| result.map(|()| sent + 1).expect("accepted"))
                        .await
                })
            })
            .collect();
        let ran = || shared.log.lock().expect("no panic").len();
        for turn in 0..MOVES {
            let (from, to) = if turn % 2 == 0 { (&left, "right") } else { (&right, "left") };
            let before = ran();
            move_to(from, to).await;
            // A message whose object moves on more than eight times before it arrives may lose its place.
            until(|| ran() > before + 2 * AHEAD * usize::from(SENDERS)).await;
        }
        enough.store(true, Ordering::SeqCst);
        let mut sent = Vec::new();
        for sender in senders {
            sent.push(sender.await.expect("no panic"));
        }
        // What was accepted has run once this is answered: it is behind all of it at each of the hosts.
        third.request(key(), message("hit"), PATIENCE).await.expect("an answer");
        let log = shared.log.lock().expect("no panic").clone();
        for (sender, sent) in (0..SENDERS).zip(sent) {
            let numbers: Vec<u64> = log.iter().filter(|(from, _)| *from == sender).map(|(_, number)| *number).collect();
            assert!(numbers.iter().copied().eq(0..sent), "sender {sender} sent {sent}: {numbers:?}");
        }
    });
}
