//! Bulk transfers past user space: the kernel moves bytes from socket to socket by way of a pipe (`splice(2)`).

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// How much a pipe is asked to hold. Larger ones leave a core's cache, smaller ones cost more system calls.
const PIPE_LEN: usize = 512 * 1024;

/// How many empty pipes a thread keeps at hand; to make one costs three system calls.
const SPARE_PIPES: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// The way of one direction through a pipe, which it has only while bytes flow.
#[derive(Default)]
pub(super) struct Piped {
    pipe: Option<Pipe>,
    /// How many bytes are in the pipe.
    held: usize,
    /// The kernel will not do it for these sockets, or the process has no descriptors left: bytes are copied.
    refused: bool,
}

struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
}

impl Piped {
    pub(super) fn is_possible(&self) -> bool {
        !self.refused
    }

    /// Moves once what `from` has, adds what `to` has taken to `count`, and says whether `from` has ended.
    ///
    /// When it turns out not to be possible, nothing was moved.
    pub(super) fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        to: &TcpStream,
        count: &mut u64,
    ) -> Poll<io::Result<bool>> {
        if self.held == 0 {
            let Some(filled) = ready!(self.poll_fill(cx, from))? else { return Poll::Ready(Ok(false)) };
            self.held = filled;
        }
        let has_ended = self.held == 0;
        ready!(self.poll_drain(cx, to, count))?;
        if has_ended {
            self.give_back();
        }
        Poll::Ready(Ok(has_ended))
    }

    /// How much has come into the empty pipe, 0 at the end; `None` if it is not possible.
    fn poll_fill(&mut self, cx: &mut Context<'_>, from: &TcpStream) -> Poll<io::Result<Option<usize>>> {
        loop {
            if from.poll_read_ready(cx)?.is_pending() {
                self.give_back();
                return Poll::Pending;
            }
            let Some(pipe) = self.pipe.take().or_else(Pipe::take) else {
                self.refused = true;
                return Poll::Ready(Ok(None));
            };
            let pipe = self.pipe.insert(pipe);
            match from.try_io(Interest::READABLE, || transfer(from, &pipe.input, PIPE_LEN)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.give_back();
                    self.refused = true;
                    return Poll::Ready(Ok(None));
                }
                result => return Poll::Ready(result.map(Some)),
            }
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, to: &TcpStream, count: &mut u64) -> Poll<io::Result<()>> {
        while let Some(pipe) = self.pipe.as_ref().filter(|_| self.held > 0) {
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, || transfer(&pipe.output, to, self.held)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(taken) => {
                    self.held -= taken;
                    *count += taken as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Leaves the empty pipe to others.
    fn give_back(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_PIPES {
                    spare.push(pipe);
                }
            });
        }
    }
}

impl Pipe {
    /// An empty pipe, unless the process is out of descriptors.
    fn take() -> Option<Self> {
        SPARE.with_borrow_mut(Vec::pop).or_else(|| Self::new().ok())
    }

    fn new() -> io::Result<Self> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user who is not root shares 64 MiB of large pipes (`fs.pipe-user-pages-soft`); beyond, this one stays small.
        let _ = fcntl_setpipe_size(&input, PIPE_LEN);
        Ok(Self { output, input })
    }
}

fn transfer(from: &impl AsFd, to: &impl AsFd, len: usize) -> io::Result<usize> {
    Ok(splice(from, None, to, None, len, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)?)
}
