use proptest::prelude::*;

use super::*;

fn pair(source: &str, destination: &str) -> ProxyHeader {
    ProxyHeader { addresses: Some((source.parse().unwrap(), destination.parse().unwrap())), tlvs: Vec::new() }
}

/// Every true prefix is incomplete and never claims to miss more than there is; the whole is `expected`, and what follows
/// is not looked at.
fn check_all_prefixes(bytes: &[u8], expected: &ProxyHeader) {
    for len in 0..bytes.len() {
        match parse(&bytes[..len]) {
            Ok(ProxyPreface::Incomplete { missing }) => assert!((1..=bytes.len() - len).contains(&missing), "{len}"),
            other => panic!("prefix {len}: {other:?}"),
        }
    }
    let complete = Ok(ProxyPreface::Complete { header: expected.clone(), len: bytes.len() });
    assert_eq!(parse(bytes), complete);
    assert_eq!(parse(&[bytes, &[22, 3, 1]].concat()), complete);
}

#[test]
fn a_line_of_text_says_who_the_client_is() {
    let bytes = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
    check_all_prefixes(bytes, &pair("192.0.2.1:56324", "198.51.100.7:443"));
    let bytes = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
    check_all_prefixes(bytes, &pair("[2001:db8::1]:1", "[2001:db8::2]:65535"));
    check_all_prefixes(b"PROXY UNKNOWN\r\n", &ProxyHeader::default());
    check_all_prefixes(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", &ProxyHeader::default());
}

/// By hand, from the specification.
#[test]
fn the_binary_header_says_the_same_and_more() {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([0x21, 0x11, 0, 12 + 8, 192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 1, 0xbb]);
    bytes.extend([0xea, 0, 5, b'v', b'p', b'c', b'-', b'1']);
    let expected = ProxyHeader { tlvs: bytes[28..].to_vec(), ..pair("192.0.2.1:56324", "198.51.100.7:443") };
    check_all_prefixes(&bytes, &expected);
    bytes[12] = 0x20;
    check_all_prefixes(&bytes, &ProxyHeader { addresses: None, ..expected });
}

#[test]
fn a_proxys_own_connection_need_not_make_sense_beyond_that() {
    for rest in [&[0x11, 0, 0][..], &[0x12, 0, 2, 7, 7], &[0x21, 0, 3, 1, 2, 3]] {
        check_all_prefixes(&[V2_SIGNATURE, &[0x20], rest].concat(), &ProxyHeader::default());
    }
}

#[test]
fn unix_sockets_and_unknown_families_have_no_address() {
    let unix = [V2_SIGNATURE, &[0x21, 0x31, 0, 216], &[b'/'; 216]].concat();
    check_all_prefixes(&unix, &ProxyHeader::default());
    let unspecified = [V2_SIGNATURE, &[0x21, 0, 0, 3], b"abc"].concat();
    check_all_prefixes(&unspecified, &ProxyHeader::default());
}

#[test]
fn what_is_no_header_is_refused_with_the_first_byte_that_makes_it_so() {
    for (bytes, fault) in [
        (&b"GET / HTTP/1.1\r\n"[..], InvalidProxyHeader::Missing),
        (&[22, 3, 1], InvalidProxyHeader::Missing),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 1\r\n", InvalidProxyHeader::Malformed),
        (b"PROXY TCP4 ::1 ::2 1 2\r\n", InvalidProxyHeader::Malformed),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 2\r\n", InvalidProxyHeader::Malformed),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 1 65536\r\n", InvalidProxyHeader::Malformed),
        (b"PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n", InvalidProxyHeader::Malformed),
        (&[b"PROXY ".as_slice(), &[b'x'; 101]].concat(), InvalidProxyHeader::Malformed),
        (&[V2_SIGNATURE, &[0x11]].concat(), InvalidProxyHeader::Malformed),
        (&[V2_SIGNATURE, &[0x21, 0x12, 0, 0]].concat(), InvalidProxyHeader::Malformed),
        (&[V2_SIGNATURE, &[0x21, 0x11, 0, 11], &[0; 11]].concat(), InvalidProxyHeader::Malformed),
        (&[V2_SIGNATURE, &[0x21, 0x11, 0, 14], &[0; 14]].concat(), InvalidProxyHeader::Malformed),
        (&[V2_SIGNATURE, &[0x21, 0x11, 0x10, 0]].concat(), InvalidProxyHeader::TooLarge),
    ] {
        assert_eq!(parse(bytes), Err(fault), "{:?}", bytes.escape_ascii().to_string());
    }
}

/// A checksum over the header in which it came would be wrong in another one.
#[test]
fn extensions_are_kept_but_for_those_of_one_header() {
    let kept = [0xea, 0, 1, b'a', 0x02, 0, 2, b'b', b'c'];
    let header = ProxyHeader {
        tlvs: [&[0x03, 0, 4, 1, 2, 3, 4][..], &kept[..4], &[0x04, 0, 1, 0], &kept[4..]].concat(),
        ..pair("192.0.2.1:1", "192.0.2.2:2")
    };
    let bytes = header.encode(ProxyVersion::V2);
    check_all_prefixes(&bytes, &ProxyHeader { tlvs: kept.to_vec(), ..header.clone() });
    assert_eq!(header.encode(ProxyVersion::V1), b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
}

#[test]
fn addresses_of_two_families_become_one() {
    let text = |source, destination| String::from_utf8(pair(source, destination).encode(ProxyVersion::V1)).unwrap();
    assert_eq!(text("[::ffff:192.0.2.1]:1", "192.0.2.2:2"), "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
    assert_eq!(text("[2001:db8::1]:1", "192.0.2.2:2"), "PROXY TCP6 2001:db8::1 ::ffff:192.0.2.2 1 2\r\n");
    assert_eq!(ProxyHeader::default().encode(ProxyVersion::V1), b"PROXY UNKNOWN\r\n");
    check_all_prefixes(&ProxyHeader::default().encode(ProxyVersion::V2), &ProxyHeader::default());
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        source in any::<(IpAddr, u16)>(),
        destination in any::<(IpAddr, u16)>(),
        values in prop::collection::vec((5u8.., prop::collection::vec(any::<u8>(), 0..20)), 0..4),
    ) {
        let tlvs = values.iter().flat_map(|(kind, value)| [&[*kind, 0, u8::try_from(value.len()).unwrap()][..], value].concat()).collect();
        let (source, destination) = one_family(source.into(), destination.into());
        let header = ProxyHeader { addresses: Some((source, destination)), tlvs };
        check_all_prefixes(&header.encode(ProxyVersion::V2), &header);
        check_all_prefixes(&header.encode(ProxyVersion::V1), &ProxyHeader { tlvs: Vec::new(), ..header });
    }

    #[test]
    fn nonsense_never_panics_and_is_never_waited_for_beyond_the_limit(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        start in prop::sample::select(vec![&b""[..], V1_START, V2_SIGNATURE]),
    ) {
        let bytes = [start, &bytes].concat();
        if let Ok(ProxyPreface::Incomplete { missing }) = parse(&bytes) {
            prop_assert!(missing > 0 && bytes.len() + missing <= MAX_PROXY_HEADER_LEN);
        }
    }
}
