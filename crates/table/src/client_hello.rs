//! From the first bytes of a connection to the server name that the client asks for.
//!
//! A pure function over all bytes received so far: the caller owns the socket, the deadline and the buffer, and
//! replays the buffer byte for byte to whoever gets the connection. Nothing here depends on how the bytes were split
//! into TCP segments or TLS records.

use std::borrow::Cow;
use std::net::IpAddr;

use portreeve_names::{Hostname, InvalidHostname};

/// How many bytes a client may need to say its whole ClientHello, record headers included.
///
/// A hello with post-quantum key shares takes about 2 KiB, and RFC 8446 lets a handshake message be 16 MiB; this
/// leaves room for whatever extensions come and still bounds what a stranger can make the gateway hold.
pub const MAX_CLIENT_HELLO_LEN: usize = 64 * 1024;

/// What the bytes so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// Good so far, but the hello goes on.
    Incomplete {
        /// At least this many more bytes are needed (1 or more): asking again earlier is a waste.
        missing: usize,
    },
    /// The whole ClientHello is here; bytes after it are allowed.
    Complete {
        /// The name in the `server_name` extension; in a hello with ECH that is the outer, public name.
        ///
        /// `None` if the client sends none, or an IP address, which RFC 6066 does not count as a name.
        server_name: Option<Hostname>,
    },
}

/// Why the bytes cannot become a usable ClientHello, whatever follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidHello {
    /// The client does not start with a TLS handshake; it may speak plain HTTP, or SSL 2.
    #[error("the client does not speak TLS")]
    NotTls,
    /// TLS, but the first message is not a ClientHello.
    #[error("the client's first message is not a ClientHello")]
    NotClientHello,
    /// Longer than [`MAX_CLIENT_HELLO_LEN`].
    #[error("the ClientHello is longer than {MAX_CLIENT_HELLO_LEN} bytes")]
    TooLarge,
    /// A length, a list or a repeated name breaks RFC 8446 or RFC 6066.
    #[error("the ClientHello is malformed")]
    Malformed,
    /// The server name is not a DNS host name.
    #[error("the server name is not a DNS host name")]
    BadServerName,
}

/// Reads the server name out of everything that a client has sent so far.
///
/// Copies nothing and allocates nothing but the name, unless the hello is spread over several TLS records. What is
/// wrong is noticed with the first byte that makes it so.
pub fn server_name(bytes: &[u8]) -> Result<Hello, InvalidHello> {
    let mut message = Cow::Borrowed(&[][..]);
    let mut rest = bytes;
    loop {
        let Some(len) = fragment_len(rest)? else {
            return incomplete(bytes, RECORD_HEADER_LEN - rest.len() + outstanding(&message)?);
        };
        let received = &rest[RECORD_HEADER_LEN..];
        let (fragment, next) = received.split_at(len.min(received.len()));
        join(&mut message, fragment);
        let outstanding = outstanding(&message)?;
        if outstanding == 0 {
            return Ok(Hello::Complete { server_name: name_in_message(&message)? });
        }
        let coming = len - fragment.len();
        if coming > 0 {
            let next_header = if outstanding > coming { RECORD_HEADER_LEN } else { 0 };
            return incomplete(bytes, next_header + outstanding);
        }
        rest = next;
    }
}

fn incomplete(bytes: &[u8], missing: usize) -> Result<Hello, InvalidHello> {
    if bytes.len() + missing > MAX_CLIENT_HELLO_LEN {
        Err(InvalidHello::TooLarge)
    } else {
        Ok(Hello::Incomplete { missing })
    }
}

// === Records: RFC 8446, section 5.1 ===

const RECORD_HEADER_LEN: usize = 5;
const MAX_FRAGMENT_LEN: usize = 1 << 14;
const CONTENT_TYPE_HANDSHAKE: u8 = 22;
/// The same from SSL 3 to TLS 1.3; the minor version must be ignored.
const VERSION_MAJOR: u8 = 3;

/// How long the fragment is that follows the record header at the start of `bytes`; `None` while the header is cut off.
fn fragment_len(bytes: &[u8]) -> Result<Option<usize>, InvalidHello> {
    match *bytes {
        [content_type, ..] if content_type != CONTENT_TYPE_HANDSHAKE => Err(InvalidHello::NotTls),
        [_, major, ..] if major != VERSION_MAJOR => Err(InvalidHello::NotTls),
        [_, _, _, high, low, ..] => match usize::from(u16::from_be_bytes([high, low])) {
            len @ 1..=MAX_FRAGMENT_LEN => Ok(Some(len)),
            _ => Err(InvalidHello::Malformed),
        },
        _ => Ok(None),
    }
}

fn join<'a>(message: &mut Cow<'a, [u8]>, fragment: &'a [u8]) {
    if message.is_empty() {
        *message = Cow::Borrowed(fragment);
    } else {
        message.to_mut().extend_from_slice(fragment);
    }
}

// === The handshake message: RFC 8446, section 4 ===

const MESSAGE_HEADER_LEN: usize = 4;
const MESSAGE_TYPE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: usize = 0;
const NAME_TYPE_HOST_NAME: usize = 0;

/// How many bytes of the message are still to come, at least; 0 when it is whole.
fn outstanding(message: &[u8]) -> Result<usize, InvalidHello> {
    match *message {
        [message_type, ..] if message_type != MESSAGE_TYPE_CLIENT_HELLO => Err(InvalidHello::NotClientHello),
        [_, high, middle, low, ref body @ ..] => {
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            Ok(len.saturating_sub(body.len()))
        }
        _ => Ok(MESSAGE_HEADER_LEN - message.len()),
    }
}

fn name_in_message(message: &[u8]) -> Result<Option<Hostname>, InvalidHello> {
    let mut message = Reader(message);
    message.take(1)?;
    let mut body = Reader(message.vector(3)?);
    let _version_and_random = body.take(2 + 32)?;
    let _session_id = body.vector(1)?;
    let _cipher_suites = body.vector(2)?;
    let _compression_methods = body.vector(1)?;
    if body.is_empty() {
        return Ok(None);
    }
    let mut extensions = Reader(body.vector(2)?);
    body.end()?;
    let mut host_name = None;
    while !extensions.is_empty() {
        let (kind, data) = (extensions.number(2)?, extensions.vector(2)?);
        if kind == EXTENSION_SERVER_NAME {
            set_once(&mut host_name, name_in_extension(data)?)?;
        }
    }
    host_name.flatten().map_or(Ok(None), read_host_name)
}

/// RFC 6066, section 3.
fn name_in_extension(data: &[u8]) -> Result<Option<&[u8]>, InvalidHello> {
    let mut data = Reader(data);
    let mut names = Reader(data.vector(2)?);
    data.end()?;
    let mut host_name = None;
    while !names.is_empty() {
        let (kind, name) = (names.number(1)?, names.vector(2)?);
        if kind == NAME_TYPE_HOST_NAME {
            set_once(&mut host_name, name)?;
        }
    }
    Ok(host_name)
}

/// Two names would let the gateway and the backend each believe another one.
fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), InvalidHello> {
    if place.replace(value).is_some() { Err(InvalidHello::Malformed) } else { Ok(()) }
}

fn read_host_name(bytes: &[u8]) -> Result<Option<Hostname>, InvalidHello> {
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidHello::BadServerName)?;
    if text.parse::<IpAddr>().is_ok() {
        return Ok(None);
    }
    match Hostname::parse(text) {
        Ok(name) => Ok(Some(name)),
        Err(InvalidHostname::IpAddress(_)) => Ok(None),
        Err(_) => Err(InvalidHello::BadServerName),
    }
}

/// Takes a message apart from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], InvalidHello> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(InvalidHello::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// An unsigned number of `width` bytes.
    fn number(&mut self, width: usize) -> Result<usize, InvalidHello> {
        Ok(self.take(width)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes that follow their own length, which takes `width` bytes.
    fn vector(&mut self, width: usize) -> Result<&'a [u8], InvalidHello> {
        let len = self.number(width)?;
        self.take(len)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn end(&self) -> Result<(), InvalidHello> {
        if self.is_empty() { Ok(()) } else { Err(InvalidHello::Malformed) }
    }
}

#[cfg(test)]
mod tests;
