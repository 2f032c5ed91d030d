//! One process takes the place of another without a refused connection: it gets the listening sockets themselves.
//!
//! The one that serves waits at a socket in the state directory, where only its user is answered. The one that comes
//! connects there, gets the sockets, serves, and says so; then the first one lets its connections end. If it never says so,
//! the first one goes on as if nothing had happened.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::net::UnixListener;

/// The socket's name in the state directory.
const NAME: &str = "handover";
/// How many sockets one message carries; the kernel takes at most 253.
const AT_ONCE: usize = 64;
/// How long the other process may take: the one that comes reads its manifests and binds what is new.
const PATIENCE: Duration = Duration::from_mins(1);

const MORE: u8 = b'+';
const ALL: u8 = b'.';
const SERVING: u8 = b'!';

/// Waits for a process that wants to take this one's place.
pub(crate) struct Offer(UnixListener);

/// A process that does.
pub(crate) struct Successor(UnixStream);

/// What a process got whose place this one takes.
pub(crate) struct Inheritance {
    /// Its listening sockets.
    pub(crate) listeners: Vec<TcpListener>,
    predecessor: UnixStream,
}

impl Offer {
    /// Must be called by the process that has the state directory.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        let path = path(state);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixListener::bind(path).map(Self)
    }

    /// The next one that comes.
    pub(crate) async fn successor(&self) -> io::Result<Successor> {
        let stream = self.0.accept().await?.0;
        if stream.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's"));
        }
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Successor(stream))
    }
}

impl Successor {
    /// Gives it the sockets, and returns once it serves them; an error means that it does not and will not.
    pub(crate) async fn give(self, listeners: Vec<TcpListener>) -> io::Result<()> {
        blocking(move || {
            send(&self.0, &listeners)?;
            match read_byte(&self.0)? {
                SERVING => Ok(()),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        })
        .await
    }
}

impl Inheritance {
    /// Gets the sockets of the process that has the state directory; `None` if none has it.
    pub(crate) async fn take(state: &Path) -> io::Result<Option<Self>> {
        let path = path(state);
        blocking(move || {
            let predecessor = match UnixStream::connect(path) {
                Ok(stream) => stream,
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            predecessor.set_read_timeout(Some(PATIENCE))?;
            Ok(Some(Self { listeners: receive(&predecessor)?, predecessor }))
        })
        .await
    }

    /// Says that this process serves them. Its predecessor may have ended already.
    pub(crate) fn confirm(mut self) -> io::Result<()> {
        self.predecessor.write_all(&[SERVING])
    }
}

fn path(state: &Path) -> PathBuf {
    state.join(NAME)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn send(stream: &UnixStream, listeners: &[TcpListener]) -> io::Result<()> {
    for some in listeners.chunks(AT_ONCE) {
        let sockets: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        sendmsg(stream, &[IoSlice::new(&[MORE])], &mut control, SendFlags::NOSIGNAL)?;
    }
    (&*stream).write_all(&[ALL])
}

fn receive(stream: &UnixStream) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let (mut control, mut byte) = (RecvAncillaryBuffer::new(&mut space), [0]);
        let received = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other(
                "it may not open as many files as there are sockets: raise its limit (ulimit -n)",
            ));
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                listeners.extend(sockets.map(TcpListener::from));
            }
        }
        match (received.bytes, byte) {
            (1, [MORE]) => {}
            (1, [ALL]) => return Ok(listeners),
            (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn read_byte(mut stream: &UnixStream) -> io::Result<u8> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sockets_change_hands_with_who_waits_in_them() {
        let state = tempfile::tempdir().unwrap();
        assert!(Inheritance::take(state.path()).await.unwrap().is_none(), "nobody is there");
        let listeners: Vec<_> = (0..AT_ONCE + 3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let _waiting = std::net::TcpStream::connect(addresses[0]).unwrap();
        let offer = Offer::open(state.path()).unwrap();
        let giving = async { offer.successor().await.unwrap().give(listeners).await };
        let taking = async {
            let taken = Inheritance::take(state.path()).await.unwrap().unwrap();
            let got: Vec<_> = taken.listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
            let (_client, _) = taken.listeners[0].accept().unwrap();
            taken.confirm().unwrap();
            got
        };
        let (given, got) = tokio::join!(giving, taking);
        given.unwrap();
        assert_eq!(got, addresses);
    }

    #[tokio::test]
    async fn one_that_gives_up_is_told_apart_from_one_that_serves() {
        let state = tempfile::tempdir().unwrap();
        let offer = Offer::open(state.path()).unwrap();
        let giving = async { offer.successor().await.unwrap().give(Vec::new()).await };
        let taking = async { drop(Inheritance::take(state.path()).await.unwrap().unwrap()) };
        let (given, ()) = tokio::join!(giving, taking);
        assert_eq!(given.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
