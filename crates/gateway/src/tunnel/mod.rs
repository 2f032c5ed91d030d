//! The copy loop: bytes between two streams, each direction for itself.

mod pipe;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::observe::Traffic;
use pipe::Piped;

/// How much is moved at once, and at most kept for a side that does not take it.
///
/// Large enough that bulk transfers spend their time in the kernel, small enough to stay in a core's cache.
const SCRATCH_LEN: usize = 64 * 1024;

/// How many bytes a direction moves before the other one, and other tasks of the thread, have their turn.
const TURN_LEN: usize = 16 * SCRATCH_LEN;

/// From how many bytes on a direction counts as a bulk transfer, which is worth a pipe: below, to fill and drain one costs
/// more than to copy.
const BULK_LEN: u64 = 128 * 1024;

thread_local! {
    /// Shared by all tunnels of a thread: it holds bytes only within one `poll`.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_LEN].into_boxed_slice());
}

/// One side of a tunnel.
pub(crate) trait Side: AsyncRead + AsyncWrite + Unpin {
    /// The socket, if all that is read and written from now on are its bytes as they are; then the kernel may move them.
    fn socket(&self) -> Option<&TcpStream> {
        None
    }
}

impl Side for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

/// Carries bytes both ways until both directions have ended, counting them in `traffic` as they are written; `note` is shown
/// the count whenever something may have moved.
///
/// The end of one direction is passed on, after all its bytes, and leaves the other alone: a client may
/// finish its request and still get the answer. An error on either side ends both. There is no idle timeout.
pub(crate) async fn carry<C: Side, B: Side>(
    client: &mut C,
    backend: &mut B,
    traffic: &mut Traffic,
    note: impl Fn(&Traffic),
) -> io::Result<()> {
    let (mut upstream, mut downstream) = (Direction::default(), Direction::default());
    poll_fn(|cx| {
        let up = upstream.poll(cx, client, backend, &mut traffic.received)?;
        let down = downstream.poll(cx, backend, client, &mut traffic.sent)?;
        note(traffic);
        if up.is_ready() && down.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// One direction.
#[derive(Default)]
struct Direction {
    state: State,
    /// Read and not yet taken by the writer; without memory of its own while the writer keeps up.
    kept: Vec<u8>,
    /// How much of `kept` the writer has taken.
    taken: usize,
    /// Whether the writer may hold bytes back until it is flushed.
    unflushed: bool,
    /// The way past user space, for bulk transfers between sockets.
    piped: Piped,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Copying,
    Closing,
    Closed,
}

impl Direction {
    fn poll<R: Side, W: Side>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        count: &mut u64,
    ) -> Poll<io::Result<()>> {
        let turn = *count + TURN_LEN as u64;
        while *count < turn {
            if self.state != State::Copying {
                return self.poll_close(cx, writer);
            }
            ready!(self.poll_write_kept(cx, writer, count))?;
            let sockets = reader.socket().zip(writer.socket()).filter(|_| *count >= BULK_LEN);
            match sockets.filter(|_| self.piped.is_possible()) {
                Some((from, to)) => {
                    if ready!(self.piped.poll_move(cx, from, to, count))? {
                        self.state = State::Closing;
                    }
                }
                None => ready!(self.poll_move(cx, reader, writer, count))?,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes the end on; the writer flushes what it holds first (`AsyncWrite::poll_shutdown`).
    fn poll_close<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, writer: &mut W) -> Poll<io::Result<()>> {
        if self.state == State::Closing {
            ready!(Pin::new(writer).poll_shutdown(cx))?;
            self.state = State::Closed;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_kept<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
        count: &mut u64,
    ) -> Poll<io::Result<()>> {
        while self.taken < self.kept.len() {
            self.taken += ready!(poll_write(cx, writer, &self.kept[self.taken..], count))?;
        }
        (self.kept, self.taken) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Reads once and writes what was read; what the writer does not take is kept.
    fn poll_move<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        count: &mut u64,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(scratch);
            if Pin::new(reader).poll_read(cx, &mut read)?.is_pending() {
                return self.poll_flush(cx, writer);
            }
            let mut rest: &[u8] = read.filled();
            if rest.is_empty() {
                self.state = State::Closing;
            }
            while !rest.is_empty() {
                self.unflushed = true;
                match poll_write(cx, writer, rest, count)? {
                    Poll::Ready(written) => rest = &rest[written..],
                    Poll::Pending => {
                        self.kept = rest.to_vec();
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
    }

    /// There is nothing to read for now: what was written must not wait for more.
    fn poll_flush<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, writer: &mut W) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Pending
    }
}

fn poll_write<W: AsyncWrite + Unpin>(
    cx: &mut Context<'_>,
    writer: &mut W,
    bytes: &[u8],
    count: &mut u64,
) -> Poll<io::Result<usize>> {
    let written = ready!(Pin::new(writer).poll_write(cx, bytes))?;
    if written == 0 {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    *count += written as u64;
    Poll::Ready(Ok(written))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream, DuplexStream, Join, Sink, duplex};
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    use super::*;

    impl Side for BufStream<DuplexStream> {}
    impl Side for Join<&[u8], Sink> {}
    impl Side for Endless {}

    /// Two streams and a tunnel between their other ends; the tunnel's writers hold bytes back until they are flushed.
    fn tunnel(widths: [usize; 2]) -> (DuplexStream, DuplexStream, impl Future<Output = (io::Result<()>, Traffic)>) {
        let [(client, client_end), (backend, backend_end)] = widths.map(duplex);
        let tunnel = async move {
            let (mut client, mut backend) = (BufStream::new(client_end), BufStream::new(backend_end));
            let mut traffic = Traffic::default();
            let result = carry(&mut client, &mut backend, &mut traffic, |_| ()).await;
            (result, traffic)
        };
        (client, backend, tunnel)
    }

    #[tokio::test]
    async fn what_was_written_does_not_wait_for_more() {
        let (mut client, mut backend, tunnel) = tunnel([100, 100]);
        let talk = async {
            for text in [b"ask", b"yes"] {
                let mut heard = [0; 3];
                client.write_all(text).await.unwrap();
                backend.read_exact(&mut heard).await.unwrap();
                backend.write_all(&heard).await.unwrap();
                client.read_exact(&mut heard).await.unwrap();
                assert_eq!(&heard, text);
            }
        };
        let talk = timeout(Duration::from_secs(5), talk);
        tokio::select! {
            biased;
            talked = talk => talked.unwrap(),
            (result, _) = tunnel => panic!("{result:?}"),
        }
    }

    /// However narrow the pipes, both directions carry all bytes at the same time, and each ends for itself.
    #[tokio::test]
    async fn both_directions_carry_everything_at_once() {
        for widths in [[1, 1], [7, 100_000], [100_000, 7], [100_000, 100_000]] {
            let (client, backend, tunnel) = tunnel(widths);
            let bulk: Vec<u8> = (0..=255).cycle().take(20_000).collect();
            let (heard_back, heard, (result, traffic)) =
                tokio::join!(say_and_hear(client, &bulk[..9_000]), say_and_hear(backend, &bulk), tunnel);
            assert!(heard == bulk[..9_000] && heard_back == bulk, "{widths:?}");
            result.unwrap();
            assert_eq!(traffic, Traffic { received: 9_000, sent: 20_000 });
        }
    }

    /// Between sockets the kernel moves what comes after the first bytes; a slow reader, which fills pipe and socket, loses
    /// nothing either.
    #[tokio::test]
    async fn bulk_between_sockets_arrives_whole_and_each_way_ends_for_itself() {
        let (client, mut client_end) = socket_pair().await;
        let (backend, mut backend_end) = socket_pair().await;
        let bulk: Vec<u8> = (0..=250).cycle().take(20_000_000).collect();
        let mut traffic = Traffic::default();
        let (heard_back, heard, result) = tokio::join!(
            say_and_hear(client, &bulk[..9_000_000]),
            say_and_hear(backend, &bulk),
            carry(&mut client_end, &mut backend_end, &mut traffic, |_| ()),
        );
        result.unwrap();
        assert!(heard == bulk[..9_000_000] && heard_back == bulk);
        assert_eq!(traffic, Traffic { received: 9_000_000, sent: 20_000_000 });
    }

    /// Two ends of one connection, with small buffers.
    async fn socket_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(20_000).unwrap();
        let (near, far) = tokio::join!(socket.connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    async fn say_and_hear<S: AsyncRead + AsyncWrite>(stream: S, bytes: &[u8]) -> Vec<u8> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut heard = Vec::new();
        let saying = async {
            writer.write_all(bytes).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let (heard_len, ()) = tokio::join!(reader.read_to_end(&mut heard), saying);
        assert_eq!(heard_len.unwrap(), heard.len());
        heard
    }

    #[tokio::test]
    async fn a_direction_that_never_rests_leaves_the_other_its_turn() {
        let (mut answers, mut endless) = (tokio::io::join(&b"answer"[..], tokio::io::sink()), Endless);
        let mut traffic = Traffic::default();
        let mut turn = Box::pin(carry(&mut endless, &mut answers, &mut traffic, |_| ()));
        assert!(poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await.is_pending());
        drop(turn);
        assert_eq!(traffic, Traffic { received: TURN_LEN as u64, sent: 6 });
    }

    /// Always has more to say, and takes everything.
    struct Endless;

    impl AsyncRead for Endless {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buf.initialize_unfilled();
            buf.advance(buf.remaining());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
