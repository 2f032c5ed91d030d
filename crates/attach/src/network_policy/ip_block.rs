use std::net::IpAddr;

use k8s_openapi::api::networking::v1::IPBlock;

use super::answer::{Answer, Doubt};

/// Whether an address is in the block, and in none of its exceptions.
pub(super) fn contains(block: &IPBlock, address: IpAddr) -> Answer {
    let except = block.except.iter().flatten().map(|cidr| !in_cidr(cidr, address));
    Answer::all([in_cidr(&block.cidr, address)].into_iter().chain(except))
}

fn in_cidr(cidr: &str, address: IpAddr) -> Answer {
    match parse(cidr) {
        Some((network, prefix)) => (mask(network, prefix) == mask(address, prefix)).into(),
        None => Doubt::Unreadable(cidr.to_owned()).into(),
    }
}

fn parse(cidr: &str) -> Option<(IpAddr, u32)> {
    let (network, prefix) = cidr.split_once('/')?;
    let (network, prefix): (IpAddr, u32) = (network.parse().ok()?, prefix.parse().ok()?);
    (prefix <= bits(network)).then_some((network, prefix))
}

/// The family and the first `prefix` bits: addresses of two families are in no common block.
fn mask(address: IpAddr, prefix: u32) -> (u32, u128) {
    let number = match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => u128::from(address),
    };
    let width = bits(address);
    (width, number.checked_shr(width.saturating_sub(prefix)).unwrap_or_default())
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}
