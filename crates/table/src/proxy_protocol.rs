//! The PROXY protocol: a header before the first byte of a connection that says whose connection it is.
//!
//! Versions 1 and 2 as HAProxy's `proxy-protocol.txt` describes them. Bytes in, values out: the caller owns the socket and
//! the deadline, and knows whom to believe.

use std::net::{IpAddr, SocketAddr};

/// How long a header of version 2 may be: enough for the addresses and a few hundred bytes of every known extension.
pub const MAX_PROXY_HEADER_LEN: usize = 4096;

const V1_START: &[u8] = b"PROXY ";
/// `PROXY UNKNOWN` with the line end.
const V1_MIN_LEN: usize = 15;
/// With the line end.
const V1_MAX_LEN: usize = 107;
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEADER_LEN: usize = 16;
const TLV_HEADER_LEN: usize = 3;
/// Extensions that are about the bytes of one header only: a checksum, and padding.
const TLVS_OF_ONE_HEADER: [u8; 2] = [0x03, 0x04];

/// How a header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// One line of text.
    V1,
    /// Binary, with extensions.
    V2,
}

/// What a header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Where the client's connection comes from, and where it went.
    ///
    /// `None`: the sender's own connection, such as a health check, or one whose addresses are no IP addresses.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The extensions (type, length, value) of version 2, as they came.
    pub tlvs: Vec<u8>,
}

/// What the bytes so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyPreface {
    /// Good so far, but the header goes on.
    Incomplete {
        /// At least this many more bytes are needed (1 or more).
        missing: usize,
    },
    /// The whole header is here; what follows is the client's.
    Complete {
        /// What it says.
        header: ProxyHeader,
        /// How many bytes it takes.
        len: usize,
    },
}

/// Why the bytes cannot become a header, whatever follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidProxyHeader {
    /// There is none. Whether to go on without is not a question: a sender that is believed must send it.
    #[error("the connection does not start with a PROXY protocol header")]
    Missing,
    /// It breaks the format, or uses what has no meaning for TCP.
    #[error("the PROXY protocol header is malformed")]
    Malformed,
    /// Longer than [`MAX_PROXY_HEADER_LEN`].
    #[error("the PROXY protocol header is longer than {MAX_PROXY_HEADER_LEN} bytes")]
    TooLarge,
}

/// Reads the header at the start of everything that was received so far.
pub fn parse(bytes: &[u8]) -> Result<ProxyPreface, InvalidProxyHeader> {
    if bytes.starts_with(V2_SIGNATURE) {
        parse_v2(bytes)
    } else if bytes.starts_with(V1_START) {
        parse_v1(bytes)
    } else if V1_START.starts_with(bytes) {
        Ok(ProxyPreface::Incomplete { missing: V1_MIN_LEN - bytes.len() })
    } else if V2_SIGNATURE.starts_with(bytes) {
        Ok(ProxyPreface::Incomplete { missing: V2_HEADER_LEN - bytes.len() })
    } else {
        Err(InvalidProxyHeader::Missing)
    }
}

impl ProxyHeader {
    /// The header as bytes. Version 1 has no room for extensions, and those that are about the bytes of the header in
    /// which they came are left out.
    pub fn encode(&self, version: ProxyVersion) -> Vec<u8> {
        let addresses = self.addresses.map(|(source, destination)| one_family(source, destination));
        match version {
            ProxyVersion::V1 => encode_v1(addresses),
            ProxyVersion::V2 => encode_v2(addresses, &self.tlvs),
        }
    }
}

// === Version 1 ===

fn parse_v1(bytes: &[u8]) -> Result<ProxyPreface, InvalidProxyHeader> {
    let line = &bytes[..bytes.len().min(V1_MAX_LEN)];
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        let may_go_on = line.len() < V1_MAX_LEN && line.is_ascii();
        return if may_go_on {
            Ok(ProxyPreface::Incomplete { missing: 1 })
        } else {
            Err(InvalidProxyHeader::Malformed)
        };
    };
    let text = std::str::from_utf8(&line[V1_START.len()..end]).map_err(|_| InvalidProxyHeader::Malformed)?;
    let header = ProxyHeader { addresses: v1_addresses(text)?, tlvs: Vec::new() };
    Ok(ProxyPreface::Complete { header, len: end + 2 })
}

fn v1_addresses(text: &str) -> Result<Option<(SocketAddr, SocketAddr)>, InvalidProxyHeader> {
    let fields: Vec<&str> = text.split(' ').collect();
    let (source, destination, source_port, destination_port) = match *fields {
        ["UNKNOWN", ..] => return Ok(None),
        ["TCP4" | "TCP6", source, destination, source_port, destination_port] => {
            (source, destination, source_port, destination_port)
        }
        _ => return Err(InvalidProxyHeader::Malformed),
    };
    let address = |address: &str, port: &str| {
        let address: IpAddr = address.parse().ok()?;
        let port = port.parse().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()))?;
        (address.is_ipv4() == (fields[0] == "TCP4")).then_some(SocketAddr::new(address, port))
    };
    let addresses = address(source, source_port).zip(address(destination, destination_port));
    addresses.map(Some).ok_or(InvalidProxyHeader::Malformed)
}

fn encode_v1(addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((source, destination)) = addresses else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.port(), destination.port());
    format!("PROXY {family} {} {} {from} {to}\r\n", source.ip(), destination.ip()).into_bytes()
}

// === Version 2 ===

const VERSION_AND_LOCAL: u8 = 0x20;
const VERSION_AND_PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
const UNIX_STREAM: u8 = 0x31;
/// Two paths.
const UNIX_ADDRESSES_LEN: usize = 216;

fn parse_v2(bytes: &[u8]) -> Result<ProxyPreface, InvalidProxyHeader> {
    let [version_and_command, family, high, low] = match *bytes.get(V2_SIGNATURE.len()..).unwrap_or_default() {
        [command, family, high, low, ..] => [command, family, high, low],
        [command, ..] if !matches!(command, VERSION_AND_LOCAL | VERSION_AND_PROXY) => {
            return Err(InvalidProxyHeader::Malformed);
        }
        _ => return Ok(ProxyPreface::Incomplete { missing: V2_HEADER_LEN - bytes.len() }),
    };
    let len = V2_HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
    if !matches!(version_and_command, VERSION_AND_LOCAL | VERSION_AND_PROXY) {
        return Err(InvalidProxyHeader::Malformed);
    }
    if len > MAX_PROXY_HEADER_LEN {
        return Err(InvalidProxyHeader::TooLarge);
    }
    let Some(content) = bytes.get(V2_HEADER_LEN..len) else {
        return Ok(ProxyPreface::Incomplete { missing: len - bytes.len() });
    };
    let is_local = version_and_command == VERSION_AND_LOCAL;
    let read = v2_addresses(family, content).filter(|(_, tlvs)| are_tlvs(tlvs));
    let (addresses, tlvs) = match read {
        Some((_, tlvs)) if is_local => (None, tlvs),
        Some(read) => read,
        // A proxy's own connection, as its health checks are, need not make sense beyond that (section 2.2).
        None if is_local => (None, &[][..]),
        None => return Err(InvalidProxyHeader::Malformed),
    };
    Ok(ProxyPreface::Complete { header: ProxyHeader { addresses, tlvs: tlvs.to_vec() }, len })
}

type Addresses = Option<(SocketAddr, SocketAddr)>;

/// The addresses, and what follows them. `None` for what is no TCP, or is cut short.
fn v2_addresses(family: u8, content: &[u8]) -> Option<(Addresses, &[u8])> {
    match family {
        // What follows is not said to be extensions.
        UNSPECIFIED => Some((None, &[])),
        UNIX_STREAM => Some((None, content.get(UNIX_ADDRESSES_LEN..)?)),
        TCP_OVER_IPV4 => {
            let (pair, rest) = v2_pair::<4>(content)?;
            Some((Some(pair), rest))
        }
        TCP_OVER_IPV6 => {
            let (pair, rest) = v2_pair::<16>(content)?;
            Some((Some(pair), rest))
        }
        _ => None,
    }
}

/// Two addresses of `N` bytes each, then their two ports.
fn v2_pair<const N: usize>(content: &[u8]) -> Option<((SocketAddr, SocketAddr), &[u8])>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = content.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (source_port, rest) = rest.split_first_chunk::<2>()?;
    let (destination_port, rest) = rest.split_first_chunk::<2>()?;
    let address = |ip: [u8; N], port: [u8; 2]| SocketAddr::new(ip.into(), u16::from_be_bytes(port));
    Some(((address(*source, *source_port), address(*destination, *destination_port)), rest))
}

fn are_tlvs(tlvs: &[u8]) -> bool {
    let mut each = Tlvs(tlvs);
    each.by_ref().for_each(drop);
    each.0.is_empty()
}

fn encode_v2(addresses: Option<(SocketAddr, SocketAddr)>, tlvs: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let family = match addresses {
        None => UNSPECIFIED,
        Some((source, destination)) => {
            for address in [source, destination] {
                match address.ip() {
                    IpAddr::V4(ip) => content.extend(ip.octets()),
                    IpAddr::V6(ip) => content.extend(ip.octets()),
                }
            }
            content.extend(source.port().to_be_bytes());
            content.extend(destination.port().to_be_bytes());
            if source.is_ipv4() { TCP_OVER_IPV4 } else { TCP_OVER_IPV6 }
        }
    };
    // Without addresses nothing may follow that a reader would take for them.
    for tlv in Tlvs(tlvs).filter(|tlv| addresses.is_some() && !TLVS_OF_ONE_HEADER.contains(&tlv[0])) {
        content.extend(tlv);
    }
    let command = if addresses.is_some() { VERSION_AND_PROXY } else { VERSION_AND_LOCAL };
    let len = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [V2_SIGNATURE, &[command, family], &len, &content].concat()
}

/// Each extension with its header; ends early where one is cut short, and then keeps the rest.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let [_, high, low, ..] = *self.0 else { return None };
        let len = TLV_HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
        let (tlv, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(tlv)
    }
}

/// Both addresses in one family, as the header wants them: IPv4 if both are, in whatever clothes.
fn one_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (source, destination) = (plain(source), plain(destination));
    let wide = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    if source.is_ipv4() == destination.is_ipv4() { (source, destination) } else { (wide(source), wide(destination)) }
}

#[cfg(test)]
mod tests;
