use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A block of IP addresses, written `10.0.0.0/8`; one address alone is a block too.
///
/// An IPv4 address that comes in IPv6's clothes (`::ffff:192.0.2.1`) is the IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBlock {
    network: IpAddr,
    prefix: u32,
}

/// A text that is no [`AddressBlock`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no block of addresses; write it like 10.0.0.0/8 or 192.0.2.7")]
pub struct InvalidAddressBlock(String);

impl AddressBlock {
    /// Whether `address` is one of the block's.
    pub fn contains(&self, address: IpAddr) -> bool {
        bits(self.network, self.prefix) == bits(address.to_canonical(), self.prefix)
    }
}

impl FromStr for AddressBlock {
    type Err = InvalidAddressBlock;

    fn from_str(text: &str) -> Result<Self, InvalidAddressBlock> {
        let invalid = || InvalidAddressBlock(text.to_owned());
        let (network, prefix) = match text.split_once('/') {
            Some((network, prefix)) => (network, Some(prefix.parse::<u32>().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| invalid())?;
        let prefix = prefix.unwrap_or_else(|| width(network));
        if prefix > width(network) { Err(invalid()) } else { Ok(Self { network, prefix }) }
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// The family and the first `prefix` bits: addresses of two families are in no common block.
fn bits(address: IpAddr, prefix: u32) -> (u32, u128) {
    let number = match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => u128::from(address),
    };
    let width = width(address);
    (width, number.checked_shr(width.saturating_sub(prefix)).unwrap_or_default())
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_addresses_and_no_others() {
        let contains =
            |block: &str, address: &str| block.parse::<AddressBlock>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.9") && !contains("192.0.2.0/24", "2001:db8::1"));
        assert!(contains("0.0.0.0/0", "192.0.2.7") && !contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1") && !contains("2001:db8::/32", "2001:db9::1"));
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "a/8", "10.0.0.0/8/8"] {
            assert!(text.parse::<AddressBlock>().is_err(), "{text}");
        }
    }
}
