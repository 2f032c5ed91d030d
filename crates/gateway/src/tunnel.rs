//! The copy loop: bytes between two streams, each direction for itself.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::observe::Traffic;

/// How much is moved at once, and at most kept for a side that does not take it.
///
/// Large enough that bulk transfers spend their time in the kernel, small enough to stay in a core's cache.
const SCRATCH_LEN: usize = 64 * 1024;

thread_local! {
    /// Shared by all tunnels of a thread: it holds bytes only within one `poll`.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_LEN].into_boxed_slice());
}

/// Carries bytes both ways until both directions have ended, counting them in `traffic` as they are written.
///
/// The end of one direction is passed on, after all its bytes, and leaves the other alone (pains row 25): a client may
/// finish its request and still get the answer. An error on either side ends both. There is no idle timeout.
pub(crate) async fn splice<C, B>(client: &mut C, backend: &mut B, traffic: &mut Traffic) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut upstream, mut downstream) = (Direction::default(), Direction::default());
    poll_fn(|cx| {
        let up = upstream.poll(cx, client, backend, &mut traffic.received)?;
        let down = downstream.poll(cx, backend, client, &mut traffic.sent)?;
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
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Copying,
    Closing,
    Closed,
}

impl Direction {
    fn poll<R, W>(
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
        while self.state == State::Copying {
            ready!(self.poll_write_kept(cx, writer, count))?;
            ready!(self.poll_move(cx, reader, writer, count))?;
        }
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
