//! The driver: one task that owns a [`Node`] and its [`Mesh`] and moves what goes in and out. It decides nothing.

use crate::clock::Clock;
use crate::handle::{Handle, Message, Origin, Progress};
use crate::net::{self, Dialing, Security};
use crate::observe::Observer;
use crate::task::{Birth, Cause, Command, Factory, TurnRules};
use crate::wire::{Socket, Wire, Wrote};
use rehome::fence::{PeerFence, Tenure};
use rehome::id::{RoutingId, Text8, TypeName};
use rehome::link::{Hello, LinkSettings, Mesh, MeshEvent, SendError};
use rehome::node::{CallId, CallResult, Conn, Event, HostCommand, HostReply, Input, Output, Ticket, Turn, TurnEnd};
use rehome::store::StoreReply;
use rehome::time::Instant;
use rehome::wire::FailureCode;
use rehome::{Config, Node};
use rehome_stores::Engine;
use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Messages taken in before outputs are looked at again.
const BATCH: usize = 64;
/// How long the hooks and turns of a node that is over may go on, and its last records be written.
const GRACE: Duration = Duration::from_secs(2);

/// Something that happened, with the node's clock.
#[derive(Clone, Debug)]
pub struct TimedEvent {
    /// When the core said so, on this node's boot-time clock.
    pub at: Instant,
    /// What.
    pub event: Event,
}

/// What a driver needs to begin.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) node: Node,
    pub(crate) link: LinkSettings,
    pub(crate) clock: Clock,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) factories: HashMap<TypeName, Arc<dyn Factory>>,
    pub(crate) rules: TurnRules,
    pub(crate) listener: Option<TcpListener>,
    pub(crate) peers: Vec<SocketAddr>,
    pub(crate) security: Security,
    pub(crate) events: broadcast::Sender<TimedEvent>,
    pub(crate) life: watch::Sender<Life>,
    pub(crate) dialing: Arc<Dialing>,
}

/// Whether the node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Starting,
    Serving,
    Over,
}

struct Driver {
    parts: Parts,
    handle: Handle,
    mesh: Option<Mesh>,
    conns: BTreeMap<Conn, Connection>,
    objects: HashMap<Tenure, mpsc::UnboundedSender<Command>>,
    tasks: JoinSet<()>,
    answers: HashMap<CallId, (oneshot::Sender<CallResult>, Option<Progress>)>,
    stop: watch::Sender<bool>,
    observer: Observer,
}

struct Connection {
    socket: Socket,
    origin: Origin,
}

impl Connection {
    const fn dialed(&self) -> Option<SocketAddr> {
        match self.origin {
            Origin::Dialed(addr) => Some(addr),
            Origin::Accepted => None,
            #[cfg(feature = "testing")]
            Origin::Piped { .. } => None,
        }
    }
}

/// Whether the driver goes on.
enum Taken {
    GoOn,
    #[cfg(feature = "testing")]
    Crash,
}

pub(crate) async fn run(parts: Parts, handle: Handle, mut inbox: mpsc::Receiver<Message>) {
    let mut driver = Driver {
        parts,
        handle,
        mesh: None,
        conns: BTreeMap::new(),
        objects: HashMap::new(),
        tasks: JoinSet::new(),
        answers: HashMap::new(),
        stop: watch::Sender::new(false),
        observer: Observer::default(),
    };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        driver.pump();
        if driver.parts.node.is_over() {
            break;
        }
        match driver.deadline().map(|at| at.since(driver.now())) {
            Some(wait) if wait.is_zero() => {
                // Whatever is due at once, others must get their turn in between.
                tokio::task::yield_now().await;
                while batch.len() < BATCH
                    && let Ok(message) = inbox.try_recv()
                {
                    batch.push(message);
                }
            }
            Some(wait) => _ = tokio::time::timeout(wait, inbox.recv_many(&mut batch, BATCH)).await,
            None => _ = inbox.recv_many(&mut batch, BATCH).await,
        }
        for message in batch.drain(..) {
            match driver.take(message) {
                Taken::GoOn => {}
                #[cfg(feature = "testing")]
                Taken::Crash => return driver.crash(),
            }
        }
        driver.tick();
    }
    driver.finish(inbox).await;
}

impl Driver {
    fn now(&self) -> Instant {
        self.parts.clock.now().mono
    }

    fn deadline(&self) -> Option<Instant> {
        let mesh = self.mesh.as_ref().and_then(Mesh::deadline);
        [self.parts.node.deadline(), mesh].into_iter().flatten().min()
    }

    fn input(&mut self, input: Input) {
        // The only misuse would be a call id used twice, and the handle counts them.
        if let Err(misuse) = self.parts.node.handle(self.parts.clock.now(), input) {
            tracing::error!(%misuse, "the node refused an input");
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        if let Some(mesh) = &mut self.mesh
            && mesh.deadline().is_some_and(|at| at <= now)
        {
            mesh.tick(now);
        }
        if self.parts.node.deadline().is_some_and(|at| at <= now) {
            self.input(Input::Tick);
        }
    }

    fn take(&mut self, message: Message) -> Taken {
        match message {
            Message::Input(input) => self.input(input),
            Message::Stillborn { tenure, ticket, detail } => {
                self.objects.remove(&tenure);
                let reply = HostReply::Failed { code: FailureCode::ACTOR_CREATE_FAILED, detail };
                self.input(Input::Host { ticket, reply });
            }
            Message::Call { call, request, answer, progress } => {
                self.answers.insert(call, (answer, progress));
                self.input(Input::User { call, request });
            }
            Message::Connected { wire, origin, identity } => self.connected(wire, origin, identity),
            Message::Read { conn, bytes } => {
                let now = self.now();
                // What still comes on a connection that was ended here is dropped.
                if let Some(mesh) = &mut self.mesh
                    && self.conns.contains_key(&conn)
                    && let Err(error) = mesh.receive(now, conn, bytes)
                {
                    tracing::debug!(%error, "bytes were dropped");
                }
            }
            Message::Writable { conn } => {
                if let Some(connection) = self.conns.get_mut(&conn) {
                    connection.socket.unblocked();
                    self.write(conn);
                }
            }
            Message::Closed { conn } => self.forget(conn, Socket::cut),
            Message::CutConnections => {
                for conn in self.conns.keys().copied().collect::<Vec<_>>() {
                    self.forget(conn, Socket::cut);
                }
            }
            #[cfg(feature = "testing")]
            Message::Crash => return Taken::Crash,
            Message::Objects(answer) => {
                let _ = answer.send(self.parts.node.objects().cloned().collect());
            }
            Message::Inspect(answer) => {
                let _ = answer.send((self.parts.node.held(), self.parts.node.counters()));
            }
        }
        Taken::GoOn
    }

    /// Moves everything that can be moved, until nothing is left.
    fn pump(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(event) = self.mesh.as_mut().and_then(Mesh::poll_event) {
                quiet = false;
                self.mesh_event(event);
            }
            while let Some(output) = self.parts.node.poll_output() {
                quiet = false;
                self.output(output);
            }
            while let Some(conn) = self.mesh.as_mut().and_then(Mesh::poll_ready) {
                quiet = false;
                self.write(conn);
            }
            if quiet {
                break;
            }
        }
        // Tasks that have ended leave the set.
        while self.tasks.try_join_next().is_some() {}
    }

    fn mesh_event(&mut self, event: MeshEvent) {
        match event {
            MeshEvent::Up { conn, peer, agreed } => {
                let dialed = self.conns.get(&conn).and_then(Connection::dialed);
                self.parts.dialing.up(dialed, &peer.node.rid);
                self.input(Input::PeerUp { conn, peer, agreed });
            }
            MeshEvent::Record { conn, record } => self.input(Input::Record { conn, record }),
            MeshEvent::Sent { send, ok } => self.input(Input::Sent { send, written: ok }),
            MeshEvent::Down { conn, peer, reason } => {
                self.observer.connection_down(peer.as_ref(), &reason);
                let dialed = self.conns.get(&conn).and_then(Connection::dialed);
                if let Some(peer) = &peer {
                    let still_up = self.mesh.as_ref().is_some_and(|mesh| mesh.connection(&peer.node.rid).is_some());
                    self.parts.dialing.down(dialed, &peer.node.rid, still_up);
                }
                self.input(Input::PeerDown { conn });
            }
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Send { conn, send, class, record } => {
                let sent = match &mut self.mesh {
                    Some(mesh) => mesh.send(conn, send, class, &record),
                    None => return self.input(Input::Sent { send, written: false }),
                };
                match sent {
                    Ok(()) => {}
                    Err(SendError::NotUp(conn)) => tracing::debug!(?conn, "a record for a connection that is down"),
                    // Such a record never goes out, on no connection.
                    Err(error @ (SendError::NotAgreed(_) | SendError::TooLong { .. } | SendError::Encode(_))) => {
                        metrics::counter!("rehome_records_unsendable_total").increment(1);
                        tracing::error!(%error, "a record cannot be sent");
                    }
                }
            }
            Output::Drop { conn, reason } => {
                if let Some(mesh) = &mut self.mesh {
                    mesh.drop_conn(conn, reason);
                }
            }
            Output::Store { ticket, command, give_up } => {
                let (engine, handle) = (Arc::clone(&self.parts.engine), self.handle.clone());
                let wait = give_up.since(self.now());
                tokio::spawn(async move {
                    let reply = tokio::time::timeout(wait, engine.execute(command)).await;
                    handle.feed(Input::Store { ticket, reply: reply.unwrap_or(StoreReply::Unknown) }).await;
                });
            }
            Output::Host { ticket, command } => self.host(ticket, command),
            Output::Turn(turn) => self.turn(turn),
            Output::Done { call, result } => {
                if let Some((answer, _)) = self.answers.remove(&call) {
                    // A caller that no longer waits has cancelled nothing.
                    let _ = answer.send(result);
                }
            }
            Output::Progress { call, stage } => {
                if let Some((_, Some(progress))) = self.answers.get(&call) {
                    let _ = progress.send(stage);
                }
            }
            Output::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: Event) {
        match &event {
            Event::Serving { peer } => {
                self.start_mesh(peer.clone());
                self.parts.life.send_replace(Life::Serving);
            }
            Event::GuardPassed => _ = self.stop.send_replace(true),
            Event::GuardRestored => _ = self.stop.send_replace(false),
            Event::Over { .. }
            | Event::Closed { .. }
            | Event::Opened { .. }
            | Event::PeerUp { .. }
            | Event::PeerDown { .. }
            | Event::PeerGone { .. }
            | Event::Point { .. }
            | Event::SourceEnded { .. }
            | Event::TargetEnded { .. }
            | Event::Unbalanced { .. }
            | Event::CutoverLate { .. }
            | Event::Ignored { .. }
            | Event::HostFailed { .. }
            | Event::Undeliverable { .. }
            | Event::OrderGap { .. } => {}
        }
        let at = self.now();
        self.observer.event(at, &event);
        // Nobody may listen.
        let _ = self.parts.events.send(TimedEvent { at, event });
    }

    fn start_mesh(&mut self, peer: PeerFence) {
        let config = &self.parts.config;
        let capabilities = [rehome::link::V13_CAPABILITY, rehome::link::V14_CAPABILITY, rehome::link::LINK_CAPABILITY];
        let hello = Hello {
            peer,
            application_version: config.application_version,
            capabilities: capabilities.into_iter().filter_map(|name| Text8::new(name).ok()).collect(),
            chunk_limit: config.limits.chunk,
            mesh: config.mesh.clone(),
        };
        let settings = LinkSettings { require_identity: self.parts.security.authenticates(), ..self.parts.link };
        match Mesh::new(hello, settings) {
            Ok(mesh) => self.mesh = Some(mesh),
            Err(error) => return tracing::error!(%error, "no mesh"),
        }
        let (security, dialing) = (&self.parts.security, &self.parts.dialing);
        if let Some(listener) = self.parts.listener.take() {
            tokio::spawn(net::listen(listener, security.clone(), Arc::clone(dialing), self.handle.clone()));
        }
        for addr in self.parts.peers.drain(..) {
            if dialing.begin(addr) {
                tokio::spawn(net::dial(addr, security.clone(), Arc::clone(dialing), self.handle.clone()));
            }
        }
    }

    fn connected(&mut self, wire: Wire, origin: Origin, identity: Option<RoutingId>) {
        let now = self.now();
        let Some(mesh) = &mut self.mesh else { return };
        let conn = match &origin {
            Origin::Dialed(_) => mesh.connect(now, None),
            Origin::Accepted => mesh.accept(now),
            #[cfg(feature = "testing")]
            Origin::Piped { dialed: true, .. } => mesh.connect(now, None),
            #[cfg(feature = "testing")]
            Origin::Piped { dialed: false, .. } => mesh.accept(now),
        };
        if let Some(identity) = identity
            && let Err(error) = mesh.authenticate(conn, identity)
        {
            // Without an identity the hello is refused.
            tracing::error!(%error, "a connection could not be authenticated");
        }
        let socket = Socket::open(wire, conn, &self.handle);
        self.conns.insert(conn, Connection { socket, origin });
    }

    /// Writes what the mesh offers, straight from the records' own bytes.
    fn write(&mut self, conn: Conn) {
        loop {
            let now = self.now();
            let Some(mesh) = &mut self.mesh else { return };
            if mesh.should_close(conn) {
                return self.forget(conn, Socket::end);
            }
            let Some(connection) = self.conns.get_mut(&conn) else { return };
            if connection.socket.blocked() || !mesh.wants_write(conn) {
                return;
            }
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            mesh.transmit(conn, &mut slices);
            if slices.is_empty() {
                return;
            }
            match connection.socket.write(&slices, conn, &self.handle) {
                Wrote::Bytes(count) => {
                    drop(slices);
                    if let Err(error) = mesh.transmitted(now, conn, count) {
                        tracing::error!(%error, "the link lost count");
                        return self.forget(conn, Socket::cut);
                    }
                }
                Wrote::Blocked => return,
                Wrote::Broken => return self.forget(conn, Socket::cut),
            }
        }
    }

    /// Takes a connection out and tells the mesh.
    fn forget(&mut self, conn: Conn, close: fn(Socket)) {
        let now = self.now();
        if let Some(mesh) = &mut self.mesh {
            mesh.closed(now, conn);
        }
        let Some(Connection { socket, origin }) = self.conns.remove(&conn) else { return };
        close(socket);
        match origin {
            Origin::Accepted => {}
            Origin::Dialed(addr) => self.parts.dialing.closed(addr),
            #[cfg(feature = "testing")]
            Origin::Piped { alive, .. } => drop(alive),
        }
    }

    fn host(&mut self, ticket: Ticket, command: HostCommand) {
        match command {
            HostCommand::Activate { tenure, type_name, cause, arguments } => {
                self.birth(ticket, tenure, &type_name, Cause::Activate { cause, arguments });
            }
            HostCommand::Restore { tenure, type_name, version, state } => {
                self.birth(ticket, tenure, &type_name, Cause::Restore { version, state });
            }
            HostCommand::SizeHint { tenure } => self.command(&tenure, ticket, Command::SizeHint(ticket)),
            HostCommand::Capture { tenure } => self.command(&tenure, ticket, Command::Capture(ticket)),
            HostCommand::Open { tenure } | HostCommand::Resume { tenure } => {
                self.command(&tenure, ticket, Command::Opened(ticket));
            }
            HostCommand::Retire { tenure } | HostCommand::Discard { tenure } => match self.objects.remove(&tenure) {
                Some(object) if object.send(Command::Retire(ticket)).is_ok() => {}
                // It could not be made: there is nothing to drop.
                Some(_) | None => self.input(Input::Host { ticket, reply: HostReply::Done }),
            },
        }
    }

    fn birth(&mut self, ticket: Ticket, tenure: Tenure, type_name: &TypeName, cause: Cause) {
        let Some(factory) = self.parts.factories.get(type_name).cloned() else {
            let detail = format!("no such type: {type_name}");
            let reply = HostReply::Failed { code: FailureCode::ACTOR_TYPE_MISMATCH, detail };
            return self.input(Input::Host { ticket, reply });
        };
        let (commands, inbox) = mpsc::unbounded_channel();
        self.objects.insert(tenure.clone(), commands);
        let (handle, stop, rules) = (self.handle.clone(), self.stop.subscribe(), self.parts.rules);
        self.tasks.spawn(factory.task(Birth { ticket, tenure, cause, handle, stop, rules }, inbox));
    }

    fn command(&mut self, tenure: &Tenure, ticket: Ticket, command: Command) {
        let sent = self.objects.get(tenure).is_some_and(|object| object.send(command).is_ok());
        if !sent {
            let reply = HostReply::Failed { code: FailureCode::WORKER_FAILED, detail: String::from("no object") };
            self.input(Input::Host { ticket, reply });
        }
    }

    fn turn(&mut self, turn: Turn) {
        let id = turn.turn;
        let sent =
            self.objects.get(&turn.tenure).is_some_and(|object| object.send(Command::Turn(Box::new(turn))).is_ok());
        if !sent {
            self.input(Input::TurnEnd { turn: id, end: TurnEnd::Done { reply: None } });
        }
    }

    /// The node is over: callers get their end, hooks that run may end, and the last records are written. What is not
    /// done within [`GRACE`] is dropped.
    async fn finish(mut self, mut inbox: mpsc::Receiver<Message>) {
        self.pump();
        self.stop.send_replace(true);
        self.parts.dialing.stop();
        self.answers.clear();
        self.objects.clear();
        let end = tokio::time::Instant::now() + GRACE;
        loop {
            let now = self.now();
            if let Some(mesh) = &mut self.mesh {
                mesh.tick(now);
            }
            self.pump();
            if self.tasks.is_empty() && self.conns.is_empty() {
                break;
            }
            let message = tokio::select! {
                biased;
                message = inbox.recv() => message,
                _ = self.tasks.join_next(), if !self.tasks.is_empty() => None,
                () = tokio::time::sleep_until(end) => break,
            };
            // A call ends as its answer's sender is dropped; the rest is for a node that is no more.
            if let Some(message @ (Message::Writable { .. } | Message::Closed { .. })) = message {
                self.take(message);
            }
        }
        self.end();
    }

    /// The process is killed: nobody is told.
    #[cfg(feature = "testing")]
    fn crash(mut self) {
        self.parts.dialing.stop();
        self.end();
    }

    fn end(&mut self) {
        self.tasks.abort_all();
        for (_, connection) in std::mem::take(&mut self.conns) {
            connection.socket.cut();
        }
        self.parts.life.send_replace(Life::Over);
    }
}
