//! Two hosts in one process; a counter moves from one to the other and goes on counting.

use bytes::Bytes;
use rehome::fence::ObjectKey;
use rehome::id::{ObjectId, RoutingId};
use rehome::node::TypeConfig;
use rehome::state::{StateReader, StateWriter};
use rehome::wire::Payload;
use rehome_stores::Memory;
use rehome_tokio::{Activate, HandlerError, Host, HostBuilder, Object, ObjectError, Reply, TurnContext, payload};
use std::{error::Error, io::Read as _, sync::Arc, time::Duration};

struct Counter(u64);

impl Object for Counter {
    type Shared = (); // pools, clients, settings of this node: they never move
    async fn activate(_: &Arc<()>, _: Activate<'_>) -> Result<Self, ObjectError> {
        Ok(Self(0))
    }
    async fn handle(&mut self, _: &mut TurnContext, _: Payload) -> Result<Reply, HandlerError> {
        self.0 += 1;
        Ok(Reply::Answer(payload("count", self.0.to_string())?))
    }
    fn capture(&self, state: &mut StateWriter) -> Result<(), ObjectError> {
        state.write(&self.0.to_be_bytes());
        Ok(())
    }
    async fn restore(_: &Arc<()>, _: i64, mut state: StateReader) -> Result<Self, ObjectError> {
        let mut bytes = [0; 8];
        state.read_exact(&mut bytes)?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(Memory::new());
    let host = |name| HostBuilder::new(name, "example")?.object::<Counter>("counter", TypeConfig::default(), ());
    let left = host("left")?.listen("127.0.0.1:0".parse()?).await?;
    let address = left.local_addr().ok_or("no address")?;
    let left = left.start(store.clone()).await?;
    let right = host("right")?.peer(address).start(store).await?;
    let counter = ObjectKey::actor(ObjectId::new("hits")?);

    left.create(counter.clone(), "counter", Bytes::new()).await?;
    for _ in 0..3 {
        hit(&right, &counter).await?;
    }
    let moved = left.relocate(counter.clone(), RoutingId::new("right")?, None).await.outcome().await?;
    println!("{moved:?}");
    hit(&left, &counter).await?;
    left.shutdown(Duration::from_secs(5)).await;
    right.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Asks the counter through `host`, wherever it lives.
async fn hit(host: &Host, counter: &ObjectKey) -> Result<(), Box<dyn Error>> {
    let count = host.request(counter.clone(), payload("hit", "")?, Duration::from_secs(5)).await?;
    let owner = host.locate(counter.clone()).await?.ok_or("no owner")?;
    println!("asked by {}: count {} at {}", host.node(), String::from_utf8_lossy(&count.bytes), owner.node);
    Ok(())
}
