//! Two hosts in one process; a counter moves from one to the other while it is asked to count.

use bytes::Bytes;
use rehome::fence::ObjectKey;
use rehome::id::{ObjectId, RoutingId};
use rehome::node::TypeConfig;
use rehome::state::{StateReader, StateWriter};
use rehome::wire::Payload;
use rehome_stores::Memory;
use rehome_tokio::{Activate, HandlerError, HostBuilder, Object, ObjectError, Reply, TurnContext, payload};
use std::io::Read as _;
use std::{error::Error, sync::Arc, time::Duration};

struct Counter(u64);

impl Object for Counter {
    type Shared = ();
    async fn activate(_: &Arc<()>, _: Activate<'_>) -> Result<Self, ObjectError> {
        Ok(Self(0))
    }
    async fn handle(&mut self, _: &mut TurnContext, _: Payload) -> Result<Reply, HandlerError> {
        self.0 += 1;
        let count = payload("count", self.0.to_string()).map_err(|error| HandlerError::new(error.to_string()))?;
        Ok(Reply::Answer(count))
    }
    fn capture(&self, state: &mut StateWriter) -> Result<(), ObjectError> {
        state.write(&self.0.to_be_bytes());
        Ok(())
    }
    async fn restore(_: &Arc<()>, _: i64, mut state: StateReader) -> Result<Self, ObjectError> {
        let mut bytes = [0; 8];
        state.read_exact(&mut bytes).map_err(|error| ObjectError(error.to_string()))?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(Memory::new());
    let anywhere = "127.0.0.1:0".parse()?;
    let host = |name| HostBuilder::new(name, "example")?.object::<Counter>("counter", TypeConfig::default(), ());
    let builder = host("left")?.listen(anywhere).await?;
    let address = builder.local_addr().ok_or("no address")?;
    let left = builder.start(store.clone()).await?;
    let right = host("right")?.peer(address).start(store).await?;
    let counter = ObjectKey::actor(ObjectId::new("hits")?);
    left.create(counter.clone(), "counter", Bytes::new()).await?;
    for _ in 0..3 {
        let count = right.request(counter.clone(), payload("hit", "")?, Duration::from_secs(5)).await?;
        println!("count {} from {:?}", String::from_utf8_lossy(&count.bytes), left.objects().await.len());
    }
    let moved = left.relocate(counter.clone(), RoutingId::new("right")?, None).await.outcome().await?;
    println!("{moved:?}");
    let count = left.request(counter, payload("hit", "")?, Duration::from_secs(5)).await?;
    println!(
        "count {} after the move, objects on the right: {}",
        String::from_utf8_lossy(&count.bytes),
        right.objects().await.len()
    );
    left.shutdown(Duration::from_secs(5)).await;
    right.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
