//! Moves over real loopback sockets in one process, beside what they are made of: round trips on a bare socket and a
//! bare copy of as many bytes. Figures are told as ratios in one run, as machines are shared and noisy.

use bytes::Bytes;
use rehome::fence::ObjectKey;
use rehome::id::{ObjectId, RoutingId};
use rehome::node::{Event, MoveOutcome, Point, TypeConfig};
use rehome::state::{StateReader, StateWriter};
use rehome::store::{Batch, Condition, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome::time::Instant;
use rehome::wire::Payload;
use rehome_stores::{Engine as _, Memory};
use rehome_tokio::{
    Activate, HandlerError, Host, HostBuilder, Object, ObjectError, Reply, TurnContext, clock, payload,
};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Keeps its bytes as the pieces that came, as an object does that never needs them in one place.
struct Ballast(Vec<Bytes>);

impl Object for Ballast {
    type Shared = ();

    async fn activate(_: &Arc<()>, activation: Activate<'_>) -> Result<Self, ObjectError> {
        let length = std::str::from_utf8(activation.arguments).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Self(vec![vec![7u8; length].into()]))
    }

    async fn handle(&mut self, _: &mut TurnContext, message: Payload) -> Result<Reply, HandlerError> {
        Ok(Reply::Answer(message))
    }

    fn size_hint(&self) -> u64 {
        self.0.iter().map(|piece| piece.len() as u64).sum()
    }

    fn capture(&self, state: &mut StateWriter) -> Result<(), ObjectError> {
        for piece in &self.0 {
            state.push(piece.clone());
        }
        Ok(())
    }

    async fn restore(_: &Arc<()>, _: i64, mut state: StateReader) -> Result<Self, ObjectError> {
        Ok(Self(std::iter::from_fn(|| state.chunk()).collect()))
    }
}

type Failed = Box<dyn Error>;

async fn hosts(store: Arc<Memory>) -> Result<[Host; 2], Failed> {
    let config = TypeConfig { state_limit: u64::MAX, ..TypeConfig::default() };
    let builder = |name| HostBuilder::new(name, "bench")?.object::<Ballast>("ballast", config, ());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let left = builder("left")?.listen(any).await?;
    let address = left.local_addr().ok_or("no address")?;
    let left = left.start(store.clone()).await?;
    let right = builder("right")?.peer(address).start(store).await?;
    Ok([left, right])
}

/// Moves the object there and back, and gives the microseconds from its stop to its opening and of the whole move.
async fn moves(hosts: &[Host; 2], object: &ObjectKey, count: usize) -> Result<(Vec<u64>, Vec<u64>), Failed> {
    let names = [RoutingId::new("left")?, RoutingId::new("right")?];
    let (mut pauses, mut wholes) = (Vec::new(), Vec::new());
    for index in 0..count {
        let (source, target) = (index % 2, (index + 1) % 2);
        let mut at_source = hosts[source].events();
        let mut at_target = hosts[target].events();
        let started = clock::now().mono;
        let moving = hosts[source].relocate(object.clone(), names[target].clone(), None).await;
        match moving.outcome().await? {
            MoveOutcome::Moved { .. } => {}
            other @ (MoveOutcome::KeptSource { .. } | MoveOutcome::Refused(_) | MoveOutcome::Lost { .. }) => {
                return Err(format!("{other:?}").into());
            }
        }
        wholes.push(micros(clock::now().mono.since(started)));
        let sealed = point(&mut at_source, Point::Sealed).await?;
        let opened = point(&mut at_target, Point::Opened).await?;
        // One process, one clock.
        pauses.push(micros(opened.since(sealed)));
    }
    Ok((pauses, wholes))
}

async fn point(
    events: &mut tokio::sync::broadcast::Receiver<rehome_tokio::TimedEvent>,
    wanted: Point,
) -> Result<Instant, Failed> {
    loop {
        let timed = events.recv().await?;
        if matches!(timed.event, Event::Point { point, .. } if point == wanted) {
            return Ok(timed.at);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Microseconds of one round trip of a small message on a bare socket.
async fn round_trip() -> Result<u64, Failed> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut buffer = [0u8; 256];
        loop {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                return Ok::<(), std::io::Error>(());
            }
            stream.write_all(&buffer[..count]).await?;
        }
    });
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut times = Vec::new();
    for _ in 0..1000 {
        let started = std::time::Instant::now();
        stream.write_all(&[1; 200]).await?;
        stream.read_exact(&mut [0; 200]).await?;
        times.push(micros(started.elapsed()));
    }
    drop(stream);
    echo.await??;
    Ok(median(&mut times))
}

/// Microseconds of one conditional write of a record of 1 KiB.
async fn store_write(store: &Memory) -> Result<u64, Failed> {
    let key = StoreKey(Bytes::from_static(b"bench\0write"));
    let value = Bytes::from(vec![7u8; 1024]);
    let mut condition = Condition::Missing(key.clone());
    let mut times = Vec::new();
    for _ in 0..1000 {
        let put = Mutation::Put { key: key.clone(), value: value.clone(), ttl: None };
        let batch = Batch { conditions: vec![condition], mutations: vec![put] };
        let started = std::time::Instant::now();
        let reply = store.execute(StoreCommand::Write(batch)).await;
        times.push(micros(started.elapsed()));
        let StoreReply::Applied(mut versions) = reply else { return Err(format!("{reply:?}").into()) };
        condition = Condition::Version(key.clone(), versions.pop().ok_or("no version")?);
    }
    Ok(median(&mut times))
}

/// Microseconds of a bare copy of `length` bytes to a receiver that keeps them.
async fn copy(length: usize) -> Result<u64, Failed> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let data = Bytes::from(vec![7u8; length]);
    let mut times = Vec::new();
    for _ in 0..5 {
        let sender = {
            let data = data.clone();
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(&data).await?;
                stream.shutdown().await
            })
        };
        let (mut stream, _) = listener.accept().await?;
        let started = std::time::Instant::now();
        let mut kept = Vec::with_capacity(length);
        stream.read_to_end(&mut kept).await?;
        times.push(micros(started.elapsed()));
        assert_eq!(kept.len(), length);
        sender.await??;
    }
    Ok(median(&mut times))
}

async fn run() -> Result<(), Failed> {
    let store = Arc::new(Memory::new());
    let hosts = hosts(Arc::clone(&store)).await?;
    let small = ObjectKey::actor(ObjectId::new("small")?);
    hosts[0].create(small.clone(), "ballast", Bytes::from_static(b"1024")).await?;
    hosts[1].request(small.clone(), payload("hit", "")?, Duration::from_secs(10)).await?;
    moves(&hosts, &small, 20).await?;
    let (mut pauses, mut wholes) = moves(&hosts, &small, 400).await?;
    let trip = round_trip().await?;
    let pause = median(&mut pauses);
    println!("1 KiB: stop to open {pause} us, whole move {} us; bare round trip {trip} us", median(&mut wholes));
    let write = store_write(&store).await?;
    println!("1 KiB: the pause is {:.1} bare round trips (store in memory)", pause as f64 / trip.max(1) as f64);
    let own = pause as f64 - write as f64 - 2.5 * trip as f64;
    println!("1 KiB: without one store write ({write} us) and 2.5 round trips it is {own:.0} us");
    let large = ObjectKey::actor(ObjectId::new("large")?);
    let length = 64usize << 20;
    hosts[0].create(large.clone(), "ballast", Bytes::from(length.to_string())).await?;
    let (_, mut wholes) = moves(&hosts, &large, 10).await?;
    let (whole, bare) = (median(&mut wholes), copy(length).await?);
    println!("64 MiB: whole move {} ms, bare copy {} ms", whole / 1000, bare / 1000);
    println!("64 MiB: {:.0}% of the bare copy's rate", bare as f64 / whole.max(1) as f64 * 100.0);
    for host in hosts {
        host.shutdown(Duration::from_secs(10)).await;
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}
