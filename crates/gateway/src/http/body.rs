//! Bodies on their way, counted and never collected.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::observe::{Access, Outcome};

/// The body of a request. Its copies are handles on one stream: another endpoint can be tried with a copy as long as
/// nothing was sent, and the copy that stays behind knows how much was.
#[derive(Clone)]
pub(crate) struct Upload(Arc<Mutex<CountedUpload>>);

struct CountedUpload {
    body: Incoming,
    carried: u64,
    /// Set when the client did not send the body that it had announced.
    fault: Option<Outcome>,
}

impl Upload {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(CountedUpload { body, carried: 0, fault: None })))
    }

    /// The bytes that were passed on so far.
    pub(super) fn carried(&self) -> u64 {
        self.with(|upload| upload.carried)
    }

    /// What the client did wrong, if the exchange cannot go on for that reason.
    pub(super) fn fault(&self) -> Option<Outcome> {
        self.with(|upload| upload.fault)
    }

    /// The lock is held within one call only; a poisoned one protects a body that will end in an error by itself.
    fn with<T>(&self, look: impl FnOnce(&mut CountedUpload) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.with(|upload| {
            let frame = ready!(Pin::new(&mut upload.body).poll_frame(cx));
            upload.carried += frame_len(frame.as_ref());
            if let Some(Err(error)) = &frame {
                upload.fault = Some(fault_of(error));
            }
            Poll::Ready(frame)
        })
    }

    fn is_end_stream(&self) -> bool {
        self.with(|upload| upload.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|upload| upload.body.size_hint())
    }
}

/// The body of an answer; when it ends, or is given up, the request is reported.
pub(super) struct Download {
    source: Source,
    access: Option<Access>,
    upload: Option<Upload>,
}

enum Source {
    /// Said by the gateway itself.
    Own(Full<Bytes>),
    /// Streamed from the backend.
    Backend { body: Incoming, ended: bool },
}

impl Download {
    /// The gateway's own words; `access` already says what came of the request.
    pub(super) fn own(text: String, access: Access) -> Self {
        Self { source: Source::Own(Full::from(text)), access: Some(access), upload: None }
    }

    /// What the backend says; the request is served once all of it went through.
    pub(super) fn backend(body: Incoming, access: Access, upload: Upload) -> Self {
        Self { source: Source::Backend { body, ended: false }, access: Some(access), upload: Some(upload) }
    }

    /// Nothing, and nothing to report: the tunnel that follows does.
    pub(super) fn upgraded() -> Self {
        Self { source: Source::Own(Full::default()), access: None, upload: None }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = match &mut self.source {
            Source::Own(body) => {
                ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map_err(|never| match never {}))
            }
            Source::Backend { body, ended } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                *ended |= frame.is_none();
                frame
            }
        };
        let this = &mut *self;
        if let Some(access) = &mut this.access {
            access.record.traffic.sent += frame_len(frame.as_ref());
            if matches!(frame, Some(Err(_))) {
                access.record.outcome = this.upload.as_ref().and_then(Upload::fault).unwrap_or(Outcome::BackendFailed);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(body) => body.is_end_stream(),
            Source::Backend { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(body) => body.size_hint(),
            Source::Backend { body, .. } => body.size_hint(),
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let Some(access) = &mut self.access else { return };
        access.record.traffic.received = self.upload.as_ref().map_or(0, Upload::carried);
        // A body of known length is done with its last byte, without being asked for more.
        if let Source::Backend { body, ended } = &self.source
            && (*ended || body.is_end_stream())
        {
            access.record.outcome = Outcome::Served;
        }
    }
}

/// Whether a body that broke off was malformed, such as a chunk without a size, or its client has left.
fn fault_of(error: &hyper::Error) -> Outcome {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    match source.map(io::Error::kind) {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => Outcome::BadRequest,
        _ => Outcome::Aborted,
    }
}

fn frame_len<E>(frame: Option<&Result<Frame<Bytes>, E>>) -> u64 {
    match frame {
        Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.remaining() as u64),
        _ => 0,
    }
}
