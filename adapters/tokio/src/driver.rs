//! The driver: one task that owns a [`Node`] and its [`Mesh`] and moves what goes in and out. It decides nothing.

use crate::clock;
use crate::net::{self, Dialing};
use crate::object::{Birth, Cause, Command, Factory};
use bytes::Bytes;
use rehome::fence::{ObjectKey, Tenure};
use rehome::id::{RoutingId, Text8, TypeName};
use rehome::link::{Hello, LinkSettings, Mesh, MeshEvent};
use rehome::node::{
    CallError, CallId, CallResult, Conn, Event, HostCommand, HostReply, Input, MoveOutcome, NotRun, Output, Stage,
    Ticket, Turn, TurnEnd, UserRequest,
};
use rehome::store::StoreReply;
use rehome::time::Instant;
use rehome::wire::{FailureCode, Payload, Sender};
use rehome::{Config, Node};
use rehome_stores::Engine;
use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// What reaches the driver.
pub(crate) enum Message {
    Input(Input),
    Call { call: CallId, request: UserRequest, answer: oneshot::Sender<CallResult>, progress: Option<Progress> },
    Connected { stream: TcpStream, dialed: Option<SocketAddr> },
    Read { conn: Conn, bytes: Bytes },
    Writable { conn: Conn },
    Closed { conn: Conn },
    CutConnections,
    Objects(oneshot::Sender<Vec<ObjectKey>>),
    Inspect(oneshot::Sender<(rehome::node::Held, rehome::node::Counters)>),
}

pub(crate) type Progress = mpsc::UnboundedSender<Stage>;

/// Something that happened, with the node's clock.
#[derive(Clone, Debug)]
pub struct TimedEvent {
    /// When the core said so, on this node's boot-time clock.
    pub at: Instant,
    /// What.
    pub event: Event,
}

/// The way to a driver. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Handle {
    messages: mpsc::Sender<Message>,
    calls: Arc<AtomicU64>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

impl Handle {
    /// Hands an input in. A driver that is gone needs none.
    pub(crate) async fn feed(&self, input: Input) {
        let _ = self.messages.send(Message::Input(input)).await;
    }

    pub(crate) async fn tell(&self, message: Message) -> bool {
        self.messages.send(message).await.is_ok()
    }

    pub(crate) async fn start(
        &self,
        request: UserRequest,
        progress: Option<Progress>,
    ) -> (CallId, oneshot::Receiver<CallResult>) {
        let call = CallId(self.calls.fetch_add(1, Ordering::Relaxed));
        let (answer, result) = oneshot::channel();
        let _ = self.messages.send(Message::Call { call, request, answer, progress }).await;
        (call, result)
    }

    /// `None` where the driver is gone.
    pub(crate) async fn call(&self, request: UserRequest) -> Option<CallResult> {
        let (_, result) = self.start(request, None).await;
        result.await.ok()
    }

    pub(crate) async fn send(&self, from: Sender, to: ObjectKey, payload: Payload) -> Result<(), CallError> {
        match self.call(UserRequest::Send { from, to, payload }).await {
            Some(CallResult::Sent(result)) => result,
            Some(_) | None => Err(CallError::NotRun(NotRun::NotServing)),
        }
    }

    pub(crate) async fn request(
        &self,
        from: Sender,
        to: ObjectKey,
        payload: Payload,
        timeout: Duration,
    ) -> Result<Payload, CallError> {
        match self.call(UserRequest::Request { from, to, payload, timeout }).await {
            Some(CallResult::Answered(result)) => result,
            Some(_) | None => Err(CallError::NotRun(NotRun::NotServing)),
        }
    }

    pub(crate) async fn relocate(
        &self,
        object: ObjectKey,
        target: RoutingId,
        timeout: Option<Duration>,
    ) -> Result<MoveOutcome, CallError> {
        match self.call(UserRequest::Relocate { object, target, timeout }).await {
            Some(CallResult::Moved(result)) => result,
            Some(_) | None => Err(CallError::NotRun(NotRun::NotServing)),
        }
    }
}

/// What a driver needs to begin.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) node: Node,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) factories: HashMap<TypeName, Arc<dyn Factory>>,
    pub(crate) listener: Option<TcpListener>,
    pub(crate) peers: Vec<SocketAddr>,
    pub(crate) events: broadcast::Sender<TimedEvent>,
    pub(crate) serving: watch::Sender<Life>,
    pub(crate) dialing: Arc<Dialing>,
}

/// Whether the node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Starting,
    Serving,
    Over,
}

/// The most bytes read at once.
const READ: usize = 256 << 10;
/// Messages that wait for the driver before their senders wait.
const QUEUE: usize = 4096;
/// Messages taken in before outputs are looked at again.
const BATCH: usize = 64;

struct Driver {
    parts: Parts,
    handle: Handle,
    mesh: Option<Mesh>,
    sockets: HashMap<Conn, Socket>,
    objects: HashMap<Tenure, mpsc::UnboundedSender<Command>>,
    answers: HashMap<CallId, (oneshot::Sender<CallResult>, Option<Progress>)>,
    stop: watch::Sender<bool>,
}

struct Socket {
    stream: Arc<TcpStream>,
    dialed: Option<SocketAddr>,
    /// A task waits for the socket to take more.
    blocked: bool,
    reader: tokio::task::AbortHandle,
}

pub(crate) fn channel() -> (Handle, mpsc::Receiver<Message>) {
    let (messages, inbox) = mpsc::channel(QUEUE);
    (Handle { messages, calls: Arc::new(AtomicU64::new(1)) }, inbox)
}

pub(crate) async fn run(parts: Parts, handle: Handle, mut inbox: mpsc::Receiver<Message>) {
    let (stop, _) = watch::channel(false);
    let mut driver = Driver {
        parts,
        handle,
        mesh: None,
        sockets: HashMap::new(),
        objects: HashMap::new(),
        answers: HashMap::new(),
        stop,
    };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        driver.pump();
        if driver.parts.node.is_over() {
            break;
        }
        let wait = driver.deadline().map(|at| at.since(clock::now().mono));
        let took = match wait {
            Some(wait) if wait.is_zero() => {
                while batch.len() < BATCH
                    && let Ok(message) = inbox.try_recv()
                {
                    batch.push(message);
                }
                batch.len()
            }
            Some(wait) => tokio::time::timeout(wait, inbox.recv_many(&mut batch, BATCH)).await.unwrap_or(0),
            None => inbox.recv_many(&mut batch, BATCH).await,
        };
        let _ = took;
        for message in batch.drain(..) {
            driver.take(message);
        }
        driver.tick();
    }
    driver.finish().await;
}

impl Driver {
    fn deadline(&self) -> Option<Instant> {
        let mesh = self.mesh.as_ref().and_then(Mesh::deadline);
        [self.parts.node.deadline(), mesh].into_iter().flatten().min()
    }

    fn input(&mut self, input: Input) {
        // The only misuse would be a call id used twice, and the handle counts them.
        if let Err(misuse) = self.parts.node.handle(clock::now(), input) {
            tracing::error!(%misuse, "the node refused an input");
        }
    }

    fn tick(&mut self) {
        let now = clock::now().mono;
        if let Some(mesh) = &mut self.mesh
            && mesh.deadline().is_some_and(|at| at <= now)
        {
            mesh.tick(now);
        }
        if self.parts.node.deadline().is_some_and(|at| at <= now) {
            self.input(Input::Tick);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Input(input) => self.input(input),
            Message::Call { call, request, answer, progress } => {
                self.answers.insert(call, (answer, progress));
                self.input(Input::User { call, request });
            }
            Message::Connected { stream, dialed } => self.connected(stream, dialed),
            Message::Read { conn, bytes } => {
                if let Some(mesh) = &mut self.mesh
                    && self.sockets.contains_key(&conn)
                {
                    // An unknown connection has been closed meanwhile.
                    let _ = mesh.receive(clock::now().mono, conn, bytes);
                }
            }
            Message::Writable { conn } => {
                if let Some(socket) = self.sockets.get_mut(&conn) {
                    socket.blocked = false;
                    self.write(conn);
                }
            }
            Message::Closed { conn } => self.close(conn),
            Message::CutConnections => {
                for conn in self.sockets.keys().copied().collect::<Vec<_>>() {
                    self.close(conn);
                }
            }
            Message::Objects(answer) => {
                let _ = answer.send(self.parts.node.objects().cloned().collect());
            }
            Message::Inspect(answer) => {
                let _ = answer.send((self.parts.node.held(), self.parts.node.counters()));
            }
        }
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
                return;
            }
        }
    }

    fn mesh_event(&mut self, event: MeshEvent) {
        match event {
            MeshEvent::Up { conn, peer, agreed } => {
                let dialed = self.sockets.get(&conn).and_then(|socket| socket.dialed);
                self.parts.dialing.up(dialed, &peer.node.rid);
                self.input(Input::PeerUp { conn, peer, agreed });
            }
            MeshEvent::Record { conn, record } => self.input(Input::Record { conn, record }),
            MeshEvent::Sent { send, ok } => self.input(Input::Sent { send, written: ok }),
            MeshEvent::Down { conn, peer, reason } => {
                tracing::debug!(?conn, ?peer, ?reason, "connection down");
                let dialed = self.sockets.get(&conn).and_then(|socket| socket.dialed);
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
                if let Err(error) = sent {
                    tracing::debug!(%error, "a record was not sent");
                }
            }
            Output::Drop { conn, reason } => {
                if let Some(mesh) = &mut self.mesh {
                    mesh.drop_conn(conn, reason);
                }
            }
            Output::Store { ticket, command, give_up } => {
                let (engine, handle) = (Arc::clone(&self.parts.engine), self.handle.clone());
                let wait = give_up.since(clock::now().mono);
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
                self.parts.serving.send_replace(Life::Serving);
            }
            Event::GuardPassed => {
                self.stop.send_replace(true);
            }
            Event::GuardRestored => {
                self.stop.send_replace(false);
            }
            Event::Over { .. } => {
                self.stop.send_replace(true);
                self.parts.serving.send_replace(Life::Over);
            }
            Event::Closed { .. }
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
        crate::observe::event(&event);
        // Nobody may listen.
        let _ = self.parts.events.send(TimedEvent { at: clock::now().mono, event });
    }

    fn start_mesh(&mut self, peer: rehome::fence::PeerFence) {
        let config = &self.parts.config;
        let capabilities = [rehome::link::V13_CAPABILITY, rehome::link::V14_CAPABILITY, rehome::link::LINK_CAPABILITY];
        let hello = Hello {
            peer,
            application_version: config.application_version,
            capabilities: capabilities.into_iter().filter_map(|name| Text8::new(name).ok()).collect(),
            chunk_limit: config.limits.chunk,
            mesh: config.mesh.clone(),
        };
        match Mesh::new(hello, LinkSettings::default()) {
            Ok(mesh) => self.mesh = Some(mesh),
            Err(error) => return tracing::error!(%error, "no mesh"),
        }
        if let Some(listener) = self.parts.listener.take() {
            tokio::spawn(net::listen(listener, self.handle.clone()));
        }
        for addr in self.parts.peers.drain(..) {
            tokio::spawn(net::dial(addr, Arc::clone(&self.parts.dialing), self.handle.clone()));
        }
    }

    fn connected(&mut self, stream: TcpStream, dialed: Option<SocketAddr>) {
        let Some(mesh) = &mut self.mesh else { return };
        let now = clock::now().mono;
        let conn = match dialed {
            Some(_) => mesh.connect(now, None),
            None => mesh.accept(now),
        };
        let stream = Arc::new(stream);
        let reader = tokio::spawn(net::read(Arc::clone(&stream), conn, READ, self.handle.clone())).abort_handle();
        self.sockets.insert(conn, Socket { stream, dialed, blocked: false, reader });
    }

    /// Writes what the mesh offers, straight from the records' own bytes.
    fn write(&mut self, conn: Conn) {
        loop {
            let Some(mesh) = &mut self.mesh else { return };
            if mesh.should_close(conn) {
                return self.close(conn);
            }
            let Some(socket) = self.sockets.get_mut(&conn) else { return };
            if socket.blocked || !mesh.wants_write(conn) {
                return;
            }
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            mesh.transmit(conn, &mut slices);
            if slices.is_empty() {
                return;
            }
            match socket.stream.try_write_vectored(&slices) {
                Ok(0) => return self.close(conn),
                Ok(count) => {
                    drop(slices);
                    if mesh.transmitted(clock::now().mono, conn, count).is_err() {
                        return self.close(conn);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    socket.blocked = true;
                    let (stream, handle) = (Arc::clone(&socket.stream), self.handle.clone());
                    tokio::spawn(async move {
                        if stream.writable().await.is_ok() {
                            handle.tell(Message::Writable { conn }).await;
                        }
                    });
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(conn),
            }
        }
    }

    fn close(&mut self, conn: Conn) {
        let Some(socket) = self.sockets.remove(&conn) else { return };
        socket.reader.abort();
        if let Some(addr) = socket.dialed {
            self.parts.dialing.closed(addr);
        }
        if let Some(mesh) = &mut self.mesh {
            mesh.closed(clock::now().mono, conn);
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
            HostCommand::Retire { tenure } | HostCommand::Discard { tenure } => {
                self.command(&tenure, ticket, Command::Retire(ticket));
                self.objects.remove(&tenure);
            }
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
        let (handle, stop) = (self.handle.clone(), self.stop.subscribe());
        factory.spawn(Birth { ticket, tenure, cause, handle, stop }, inbox);
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

    /// The node is over: the last records are written if the sockets take them at once.
    async fn finish(mut self) {
        self.pump();
        self.parts.serving.send_replace(Life::Over);
        let sockets: Vec<Conn> = self.sockets.keys().copied().collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        for conn in sockets {
            self.write(conn);
            self.close(conn);
        }
        self.parts.dialing.stop();
    }
}
