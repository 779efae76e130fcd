//! One connection's bytes, in and out, each way with a bound: a driver that is busy stops the reading, and a peer that
//! does not read stops the writing. Knows no record.

use crate::handle::{Handle, Message};
use bytes::BytesMut;
use rehome::node::Conn;
use rustix::net::Shutdown;
use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
#[cfg(any(feature = "tls", feature = "testing"))]
use {
    bytes::Bytes,
    tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf},
    tokio::sync::mpsc,
};

/// The most bytes read at once.
const READ: usize = 256 << 10;
/// Bytes read at once while little comes.
const READ_FIRST: usize = 16 << 10;
/// How long a connection that was ended here is read to its end, so that the last bytes reach the peer.
const LINGER: Duration = Duration::from_secs(1);

/// A connection that is made, before a mesh knows it.
pub(crate) enum Wire {
    /// The socket itself: records are written from their own bytes.
    Tcp(TcpStream),
    /// Anything between: bytes are copied into it.
    #[cfg(any(feature = "tls", feature = "testing"))]
    Stream(Box<dyn ByteStream>),
}

/// A stream of bytes both ways.
#[cfg(any(feature = "tls", feature = "testing"))]
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
#[cfg(any(feature = "tls", feature = "testing"))]
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// What became of a write.
pub(crate) enum Wrote {
    /// So many bytes were taken.
    Bytes(usize),
    /// None: [`Message::Writable`] follows.
    Blocked,
    /// The connection is broken.
    Broken,
}

/// A connection of the driver. Dropping it does not close it; [`Socket::cut`] and [`Socket::end`] do.
pub(crate) struct Socket {
    out: Out,
    reader: AbortHandle,
}

enum Out {
    Tcp {
        stream: Arc<TcpStream>,
        /// A task waits for the socket to take more.
        blocked: bool,
    },
    #[cfg(any(feature = "tls", feature = "testing"))]
    Stream { queue: mpsc::Sender<Bytes>, blocked: bool, writer: AbortHandle },
}

impl Socket {
    /// Begins to read.
    pub(crate) fn open(wire: Wire, conn: Conn, handle: &Handle) -> Self {
        match wire {
            Wire::Tcp(stream) => {
                let stream = Arc::new(stream);
                let reader = tokio::spawn(read_socket(Arc::clone(&stream), conn, handle.clone())).abort_handle();
                Self { out: Out::Tcp { stream, blocked: false }, reader }
            }
            #[cfg(any(feature = "tls", feature = "testing"))]
            Wire::Stream(stream) => {
                let (read, write) = tokio::io::split(stream);
                // One piece is on its way at a time: the rest waits in the mesh, which may still put others first.
                let (queue, pieces) = mpsc::channel(1);
                let reader = tokio::spawn(read_stream(read, conn, handle.clone())).abort_handle();
                let writer = tokio::spawn(write_stream(write, pieces, conn, handle.clone())).abort_handle();
                Self { out: Out::Stream { queue, blocked: false, writer }, reader }
            }
        }
    }

    /// Whether a write would be taken, as far as is known.
    pub(crate) const fn blocked(&self) -> bool {
        match &self.out {
            Out::Tcp { blocked, .. } => *blocked,
            #[cfg(any(feature = "tls", feature = "testing"))]
            Out::Stream { blocked, .. } => *blocked,
        }
    }

    pub(crate) const fn unblocked(&mut self) {
        match &mut self.out {
            Out::Tcp { blocked, .. } => *blocked = false,
            #[cfg(any(feature = "tls", feature = "testing"))]
            Out::Stream { blocked, .. } => *blocked = false,
        }
    }

    /// Writes the begin of `slices`.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>], conn: Conn, handle: &Handle) -> Wrote {
        match &mut self.out {
            Out::Tcp { stream, blocked } => loop {
                match stream.try_write_vectored(slices) {
                    Ok(0) => return Wrote::Broken,
                    Ok(count) => return Wrote::Bytes(count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        *blocked = true;
                        let (stream, handle) = (Arc::clone(stream), handle.clone());
                        tokio::spawn(async move {
                            // Of a broken socket the reader tells.
                            if stream.writable().await.is_ok() {
                                handle.tell(Message::Writable { conn }).await;
                            }
                        });
                        return Wrote::Blocked;
                    }
                    Err(_) => return Wrote::Broken,
                }
            },
            #[cfg(any(feature = "tls", feature = "testing"))]
            Out::Stream { queue, blocked, .. } => {
                let count = slices.iter().map(|slice| slice.len()).sum();
                let mut piece = BytesMut::with_capacity(count);
                slices.iter().for_each(|slice| piece.extend_from_slice(slice));
                match queue.try_send(piece.freeze()) {
                    Ok(()) => {
                        *blocked = true;
                        Wrote::Bytes(count)
                    }
                    Err(_) => Wrote::Broken,
                }
            }
        }
    }

    /// Closes the connection as it is.
    pub(crate) fn cut(self) {
        self.reader.abort();
        match self.out {
            Out::Tcp { stream, .. } => drop(stream),
            #[cfg(any(feature = "tls", feature = "testing"))]
            Out::Stream { writer, .. } => writer.abort(),
        }
    }

    /// Closes the connection so that what was written still arrives: a socket that is closed with bytes unread would
    /// take back what the peer has not read.
    pub(crate) fn end(self) {
        match self.out {
            Out::Tcp { stream, .. } => {
                // A socket that is gone needs no end.
                let _ = rustix::net::shutdown(&*stream, Shutdown::Write);
                abort_later([Some(self.reader), None]);
            }
            #[cfg(any(feature = "tls", feature = "testing"))]
            Out::Stream { queue, writer, .. } => {
                drop(queue);
                abort_later([Some(self.reader), Some(writer)]);
            }
        }
    }
}

fn abort_later(tasks: [Option<AbortHandle>; 2]) {
    tokio::spawn(async move {
        tokio::time::sleep(LINGER).await;
        tasks.into_iter().flatten().for_each(|task| task.abort());
    });
}

/// Room for the next read: much where much came. What is left of a buffer is used before the next one is made: state
/// keeps the buffers that it came in for as long as it waits, with all that was not filled.
fn make_room(buffer: &mut BytesMut, last: usize) {
    let room = buffer.capacity() - buffer.len();
    if last >= READ_FIRST && room < READ / 4 {
        buffer.reserve(READ);
    } else if room < READ_FIRST / 4 {
        buffer.reserve(READ_FIRST);
    }
}

async fn read_socket(stream: Arc<TcpStream>, conn: Conn, handle: Handle) {
    let (mut buffer, mut last) = (BytesMut::new(), 0);
    while stream.readable().await.is_ok() {
        make_room(&mut buffer, last);
        match stream.try_read_buf(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                last = count;
                if !handle.tell(Message::Read { conn, bytes: buffer.split().freeze() }).await {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    handle.tell(Message::Closed { conn }).await;
}

#[cfg(any(feature = "tls", feature = "testing"))]
async fn read_stream(mut stream: ReadHalf<Box<dyn ByteStream>>, conn: Conn, handle: Handle) {
    let (mut buffer, mut last) = (BytesMut::new(), 0);
    loop {
        make_room(&mut buffer, last);
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => last = count,
        }
        if !handle.tell(Message::Read { conn, bytes: buffer.split().freeze() }).await {
            return;
        }
    }
    handle.tell(Message::Closed { conn }).await;
}

#[cfg(any(feature = "tls", feature = "testing"))]
async fn write_stream(
    mut stream: WriteHalf<Box<dyn ByteStream>>,
    mut pieces: mpsc::Receiver<Bytes>,
    conn: Conn,
    handle: Handle,
) {
    while let Some(piece) = pieces.recv().await {
        if stream.write_all(&piece).await.is_err() || stream.flush().await.is_err() {
            handle.tell(Message::Closed { conn }).await;
            return;
        }
        handle.tell(Message::Writable { conn }).await;
    }
    // The peer may be gone before.
    let _ = stream.shutdown().await;
}
