//! Which socket serves which port of which Gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use portreeve_attach::Warning;
use portreeve_table::PortKey;

/// The address of the first Gateway.
const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ports below this one are for the privileged, unless the system says otherwise.
const PRIVILEGED_PORTS: u16 = 1024;
/// What is added to a port that may not be bound: 443 becomes 8443.
const LOW_PORT_SHIFT: u16 = 8000;

/// The addresses of `--address-pool`: a CIDR block, or one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPool {
    network: IpAddr,
    prefix: u8,
}

/// `--listen NAMESPACE/GATEWAY:PORT=ADDR:PORT`: one socket, said outright.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The Gateway and its port.
    pub port: PortKey,
    /// Where it listens; port 0 is any free one.
    pub address: SocketAddr,
}

/// `--map FROM=TO`: one port, wherever a Gateway has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMap {
    /// The port that listeners name.
    pub from: u16,
    /// The port that is bound; 0 is any free one.
    pub to: u16,
}

/// Text that cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSocket {
    /// For `--address-pool`.
    #[error("not a block of addresses, such as 127.0.0.0/24")]
    Pool,
    /// For `--listen`.
    #[error("not NAMESPACE/GATEWAY:PORT=ADDR:PORT, such as envoy-gateway-system/nebari-gateway:443=127.0.0.1:9443")]
    Listen,
    /// For `--map`.
    #[error("not PORT=PORT, such as 443=8443")]
    Map,
}

/// Which address each Gateway has. Kept from one run to the next, so that it is stable.
pub type AddressBook = BTreeMap<String, IpAddr>;

/// How ports become sockets.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Where Gateways after the first get their addresses.
    pub pool: AddressPool,
    /// Sockets that are said outright.
    pub listens: Vec<Listen>,
    /// Ports that are said outright.
    pub maps: Vec<PortMap>,
    /// Whether this process may bind a port below 1024.
    pub may_bind: fn(u16) -> bool,
}

/// The sockets of a table's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Where each port listens.
    pub open: BTreeMap<PortKey, SocketAddr>,
    /// Ports that get no socket.
    pub refused: BTreeMap<PortKey, Refusal>,
    /// Ports that `--listen` names and nobody has.
    pub absent: Vec<PortKey>,
}

impl Sockets {
    /// What was asked for and concerns nobody.
    pub fn warnings(&self) -> impl Iterator<Item = Warning> {
        self.absent.iter().map(|port| Warning {
            subject: format!("--listen {port}"),
            message:
                "no listener has this port of this Gateway, so nothing listens there: name one that the manifests have"
                    .to_owned(),
        })
    }
}

/// Why a port gets no socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another port has it.
    #[error("{address} is wanted by both {this} and {other}: give one of them another socket with --listen or --map")]
    Taken {
        /// The socket.
        address: SocketAddr,
        /// The port that does not get it.
        this: PortKey,
        /// The port that has it.
        other: PortKey,
    },
    /// The pool is empty.
    #[error("no address is left in the pool for Gateway {gateway}: give --address-pool a larger block")]
    NoAddress {
        /// The Gateway.
        gateway: Arc<str>,
    },
}

/// Whether this process may bind a port: it tries, on loopback, and lets go at once.
pub fn may_bind(port: u16) -> bool {
    let attempt = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    !attempt.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Gives an address to every Gateway that has none, in their order: the first free one of 127.0.0.1 and the pool.
///
/// With `forget`, Gateways that are not in the list lose theirs first.
pub fn assign(book: &mut AddressBook, gateways: &[Arc<str>], pool: &AddressPool, forget: bool) {
    if forget {
        book.retain(|gateway, _| gateways.iter().any(|present| **present == **gateway));
    }
    for gateway in gateways {
        if book.contains_key(&**gateway) {
            continue;
        }
        let taken: BTreeSet<_> = book.values().copied().collect();
        let free = [FIRST].into_iter().chain(pool.addresses()).find(|address| !taken.contains(address));
        if let Some(address) = free {
            book.insert((**gateway).to_owned(), address);
        }
    }
}

impl Rules {
    /// The socket of every port. Where two want the same one, the port that had it in `before` keeps it, else the
    /// first.
    pub fn resolve<'a>(
        &self,
        ports: impl IntoIterator<Item = &'a PortKey>,
        book: &AddressBook,
        before: &BTreeMap<PortKey, SocketAddr>,
    ) -> Sockets {
        let ports: BTreeSet<_> = ports.into_iter().collect();
        let listens = self.listens.iter().map(|listen| &listen.port);
        let absent = listens.filter(|port| !ports.contains(port)).cloned().collect();
        let mut sockets = Sockets { absent, ..Sockets::default() };
        let mut wanted = Vec::new();
        for port in ports {
            match self.socket(port, book) {
                Some(address) => wanted.push((before.get(port) != Some(&address), port, address)),
                None => {
                    sockets.refused.insert(port.clone(), Refusal::NoAddress { gateway: port.gateway.clone() });
                }
            }
        }
        wanted.sort();
        let mut holders: BTreeMap<SocketAddr, &PortKey> = BTreeMap::new();
        for (_, port, address) in wanted {
            if let Some(other) = holder(&holders, address) {
                let refusal = Refusal::Taken { address, this: port.clone(), other: other.clone() };
                sockets.refused.insert(port.clone(), refusal);
            } else {
                holders.insert(address, port);
                sockets.open.insert(port.clone(), address);
            }
        }
        sockets
    }

    /// The first port that is said twice, as it is written.
    pub fn said_twice(&self) -> Option<String> {
        let listens = self.listens.iter().map(|listen| format!("--listen {}", listen.port));
        let maps = self.maps.iter().map(|map| format!("--map {}", map.from));
        let mut said = BTreeSet::new();
        listens.chain(maps).find(|text| !said.insert(text.clone()))
    }

    fn socket(&self, port: &PortKey, book: &AddressBook) -> Option<SocketAddr> {
        if let Some(listen) = self.listens.iter().find(|listen| listen.port == *port) {
            return Some(listen.address);
        }
        let number = match self.maps.iter().find(|map| map.from == port.port) {
            Some(map) => map.to,
            None if port.port < PRIVILEGED_PORTS && !(self.may_bind)(port.port) => port.port + LOW_PORT_SHIFT,
            None => port.port,
        };
        book.get(&*port.gateway).map(|address| SocketAddr::new(*address, number))
    }
}

/// Who has a socket already: the same one, or one whose address is every address.
fn holder<'a>(holders: &BTreeMap<SocketAddr, &'a PortKey>, address: SocketAddr) -> Option<&'a PortKey> {
    let (ip, port) = (address.ip(), address.port());
    // Port 0 is a different one each time.
    if port == 0 {
        return None;
    }
    // Every address of IPv6 is every address of IPv4 too (`IPV6_V6ONLY` is off).
    let every: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    let of_family = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { every };
    let covering = [ip, of_family, every].into_iter().find_map(|ip| holders.get(&SocketAddr::new(ip, port)));
    let is_covered = |held: &SocketAddr| held.port() == port && (ip == every || held.is_ipv4() == ip.is_ipv4());
    let covered = || holders.iter().find(|(held, _)| ip.is_unspecified() && is_covered(held)).map(|(_, holder)| holder);
    covering.or_else(covered).copied()
}

impl AddressPool {
    /// Every address that a host may have.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let (bits, first) = match self.network {
            IpAddr::V4(address) => (32, u128::from(address.to_bits())),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        let free = u32::from(bits - self.prefix);
        let last = first | 1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
        // The first and last address of an IPv4 block are the network's own and for broadcasts.
        let edge = u128::from(free > 1 && self.network.is_ipv4());
        let is_v4 = self.network.is_ipv4();
        (first + edge..=last - edge).map(move |address| match u32::try_from(address) {
            Ok(address) if is_v4 => IpAddr::V4(Ipv4Addr::from_bits(address)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(address)),
        })
    }
}

impl FromStr for AddressPool {
    type Err = BadSocket;

    fn from_str(text: &str) -> Result<Self, BadSocket> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let network: IpAddr = address.parse().map_err(|_| BadSocket::Pool)?;
        let bits = if network.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), |prefix| prefix.parse().map_err(|_| BadSocket::Pool))?;
        if prefix > bits {
            return Err(BadSocket::Pool);
        }
        let mask = |bits: u32| if u32::from(prefix) == 0 { 0 } else { u128::MAX << (bits - u32::from(prefix)) };
        let network = match network {
            IpAddr::V4(address) => {
                let masked = u128::from(address.to_bits()) & mask(32);
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(masked).unwrap_or_default()))
            }
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask(128))),
        };
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for AddressPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl FromStr for Listen {
    type Err = BadSocket;

    fn from_str(text: &str) -> Result<Self, BadSocket> {
        let (port, address) = text.split_once('=').ok_or(BadSocket::Listen)?;
        let (gateway, port) = port.rsplit_once(':').ok_or(BadSocket::Listen)?;
        let is_name = |part: &str| !part.is_empty() && !part.contains('/');
        if !gateway.split_once('/').is_some_and(|(namespace, name)| is_name(namespace) && is_name(name)) {
            return Err(BadSocket::Listen);
        }
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(BadSocket::Listen)?;
        let address = address.parse().map_err(|_| BadSocket::Listen)?;
        Ok(Self { port: PortKey { gateway: gateway.into(), port }, address })
    }
}

impl FromStr for PortMap {
    type Err = BadSocket;

    fn from_str(text: &str) -> Result<Self, BadSocket> {
        let (from, to) = text.split_once('=').ok_or(BadSocket::Map)?;
        let from = from.parse().ok().filter(|from| *from != 0).ok_or(BadSocket::Map)?;
        Ok(Self { from, to: to.parse().map_err(|_| BadSocket::Map)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(gateway: &str, port: u16) -> PortKey {
        PortKey { gateway: gateway.into(), port }
    }

    fn rules(listens: &[&str], maps: &[&str]) -> Rules {
        Rules {
            pool: "127.0.0.0/24".parse().unwrap(),
            listens: listens.iter().map(|text| text.parse().unwrap()).collect(),
            maps: maps.iter().map(|text| text.parse().unwrap()).collect(),
            may_bind: |_| false,
        }
    }

    fn book(entries: &[(&str, &str)]) -> AddressBook {
        entries.iter().map(|(gateway, address)| ((*gateway).to_owned(), address.parse().unwrap())).collect()
    }

    fn gateways(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn addresses_are_given_in_order_and_kept() {
        let pool = "127.0.0.0/24".parse().unwrap();
        let mut addresses = AddressBook::new();
        assign(&mut addresses, &gateways(&["z/first", "a/second"]), &pool, true);
        assert_eq!(addresses, book(&[("z/first", "127.0.0.1"), ("a/second", "127.0.0.2")]));
        // A newcomer takes nobody's place, and what is gone leaves its own.
        assign(&mut addresses, &gateways(&["a/new", "a/second", "z/first"]), &pool, true);
        assert_eq!(addresses["a/new"], IpAddr::from([127, 0, 0, 3]));
        assign(&mut addresses, &gateways(&["a/new"]), &pool, false);
        assert_eq!(addresses.len(), 3, "what cannot be read is not gone");
        assign(&mut addresses, &gateways(&["a/new", "b/next"]), &pool, true);
        assert_eq!(addresses, book(&[("a/new", "127.0.0.3"), ("b/next", "127.0.0.1")]));
    }

    #[test]
    fn the_first_gateway_is_on_loopback_whatever_the_pool() {
        let mut addresses = AddressBook::new();
        assign(&mut addresses, &gateways(&["a/a", "a/b", "a/c", "a/d"]), &"10.0.0.4/30".parse().unwrap(), true);
        assert_eq!(addresses, book(&[("a/a", "127.0.0.1"), ("a/b", "10.0.0.5"), ("a/c", "10.0.0.6")]));
        let sockets = rules(&[], &[]).resolve(&[key("a/d", 8080)], &addresses, &BTreeMap::new());
        assert_eq!(sockets.refused[&key("a/d", 8080)], Refusal::NoAddress { gateway: "a/d".into() });
    }

    #[test]
    fn pools_hold_the_addresses_of_hosts() {
        let cases = [
            ("10.0.0.7/30", "10.0.0.4/30", vec!["10.0.0.5", "10.0.0.6"]),
            ("10.0.0.6/31", "10.0.0.6/31", vec!["10.0.0.6", "10.0.0.7"]),
            ("10.0.0.9", "10.0.0.9/32", vec!["10.0.0.9"]),
            ("fd00::5/127", "fd00::4/127", vec!["fd00::4", "fd00::5"]),
        ];
        for (text, shown, addresses) in cases {
            let pool: AddressPool = text.parse().unwrap();
            assert_eq!(pool.to_string(), shown);
            assert_eq!(pool.addresses().map(|address| address.to_string()).collect::<Vec<_>>(), addresses);
        }
        for text in ["0.0.0.0/0", "::/0"] {
            assert_eq!(text.parse::<AddressPool>().unwrap().addresses().take(3).count(), 3, "{text}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/x"] {
            assert_eq!(text.parse::<AddressPool>(), Err(BadSocket::Pool), "{text}");
        }
    }

    /// Origin: `--listen …:80=0.0.0.0:9999` beside `…:443=127.0.0.1:9999` was said to be in use by another process.
    #[test]
    fn every_address_holds_each_one_of_them() {
        let cases = [
            ("0.0.0.0:9", "127.0.0.1:9", true),
            ("[::]:9", "127.0.0.1:9", true),
            ("[::]:9", "0.0.0.0:9", true),
            ("[::]:9", "[::1]:9", true),
            ("0.0.0.0:9", "[::1]:9", false),
            ("0.0.0.0:9", "127.0.0.1:8", false),
            ("127.0.0.1:9", "127.0.0.2:9", false),
            ("0.0.0.0:0", "127.0.0.1:0", false),
        ];
        for (one, other, quarrel) in cases {
            for (first, second) in [(one, other), (other, one)] {
                let rules = rules(&[&format!("a/g:80={first}"), &format!("a/g:443={second}")], &[]);
                let ports = [key("a/g", 80), key("a/g", 443)];
                let refused = rules.resolve(&ports, &AddressBook::new(), &BTreeMap::new()).refused;
                assert_eq!(!refused.is_empty(), quarrel, "{first} and {second}");
            }
        }
    }

    #[test]
    fn what_is_said_twice_or_of_nobody_is_noticed() {
        let once = rules(&["a/g:80=127.0.0.1:1", "a/g:81=127.0.0.1:2"], &["80=1", "81=2"]);
        assert_eq!(once.said_twice(), None);
        let absent = once.resolve(&[key("a/g", 80)], &AddressBook::new(), &BTreeMap::new()).absent;
        assert_eq!(absent, [key("a/g", 81)]);
        let listens = rules(&["a/g:80=127.0.0.1:1", "a/g:80=127.0.0.1:2"], &[]);
        assert_eq!(listens.said_twice().as_deref(), Some("--listen a/g:80"));
        assert_eq!(rules(&[], &["80=1", "80=2"]).said_twice().as_deref(), Some("--map 80"));
    }

    #[test]
    fn ports_are_bound_as_they_are_said_else_mapped_else_shifted() {
        let rules = rules(&["a/g:443=127.0.0.9:9443"], &["80=8081"]);
        let ports = [key("a/g", 80), key("a/g", 443), key("a/h", 443), key("a/h", 8786)];
        let sockets = rules.resolve(&ports, &book(&[("a/g", "127.0.0.1"), ("a/h", "127.0.0.2")]), &BTreeMap::new());
        let open: Vec<_> = sockets.open.values().map(ToString::to_string).collect();
        assert_eq!(open, ["127.0.0.1:8081", "127.0.0.9:9443", "127.0.0.2:8443", "127.0.0.2:8786"]);
        let privileged = Rules { may_bind: |_| true, ..rules };
        let sockets = privileged.resolve(&[key("a/h", 443)], &book(&[("a/h", "127.0.0.2")]), &BTreeMap::new());
        assert_eq!(sockets.open[&key("a/h", 443)].port(), 443);
    }

    #[test]
    fn one_socket_has_one_port_and_the_refusal_names_both() {
        let rules = rules(&["a/h:443=127.0.0.1:8443"], &[]);
        let (first, second) = (key("a/g", 443), key("a/h", 443));
        let book = book(&[("a/g", "127.0.0.1"), ("a/h", "127.0.0.2")]);
        let sockets = rules.resolve([&first, &second], &book, &BTreeMap::new());
        assert_eq!(sockets.open.keys().collect::<Vec<_>>(), [&first]);
        let message = sockets.refused[&second].to_string();
        assert!(message.starts_with("127.0.0.1:8443 is wanted by both a/h:443 and a/g:443"), "{message}");
        // Who has it keeps it.
        let before = [(second.clone(), "127.0.0.1:8443".parse().unwrap())].into();
        let sockets = rules.resolve([&first, &second], &book, &before);
        assert_eq!(sockets.refused.keys().collect::<Vec<_>>(), [&first]);
    }

    #[test]
    fn any_free_port_is_a_different_one_each_time() {
        let rules = rules(&[], &["80=0", "443=0"]);
        let ports = [key("a/g", 80), key("a/g", 443)];
        let sockets = rules.resolve(&ports, &book(&[("a/g", "127.0.0.1")]), &BTreeMap::new());
        assert_eq!(sockets.refused, BTreeMap::new());
    }

    #[test]
    fn what_is_not_a_socket_is_not_taken_for_one() {
        for text in [
            "",
            "a/g=127.0.0.1:1",
            "g:443=127.0.0.1:1",
            "a/g:0=127.0.0.1:1",
            "a/g:443=127.0.0.1",
            "a/b/c:1=127.0.0.1:1",
        ] {
            assert_eq!(text.parse::<Listen>(), Err(BadSocket::Listen), "{text}");
        }
        for text in ["", "443", "443=x", "0=1", "70000=1"] {
            assert_eq!(text.parse::<PortMap>(), Err(BadSocket::Map), "{text}");
        }
        assert_eq!("a/g:443=[::1]:1".parse::<Listen>().unwrap().address, "[::1]:1".parse().unwrap());
    }
}
