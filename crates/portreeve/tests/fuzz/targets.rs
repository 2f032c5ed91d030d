//! What is fuzzed, and the laws that hold for any input.

use std::sync::Arc;

use portreeve::manifest;
use portreeve_table::client_hello::{Hello, MAX_CLIENT_HELLO_LEN, server_name};
use portreeve_table::proxy_protocol::{MAX_PROXY_HEADER_LEN, ProxyPreface, ProxyVersion, parse};

/// Where to cut an input: everywhere near its start, and now and then further on.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..len.min(64)).chain((64..len).step_by(97)).chain([len])
}

/// More bytes never change an answer, nor make good what was refused, and nothing is waited for beyond the limit.
pub(crate) fn client_hello(bytes: &[u8]) {
    let whole = server_name(bytes);
    for cut in cuts(bytes.len()) {
        match server_name(&bytes[..cut]) {
            Ok(Hello::Incomplete { missing }) => {
                assert!(missing > 0 && cut + missing <= MAX_CLIENT_HELLO_LEN);
                assert!(
                    cut + missing <= bytes.len() || !matches!(whole, Ok(Hello::Complete { .. })),
                    "{missing} bytes were said to be missing after {cut}"
                );
            }
            // Of several faults another may be seen first when there are more bytes.
            Err(fault) => assert!(whole.is_err(), "{fault} after {cut} bytes, and then {whole:?}"),
            answer @ Ok(Hello::Complete { .. }) => assert_eq!(answer, whole, "after {cut} bytes"),
        }
    }
}

/// The same, and what was read can be written and read again.
pub(crate) fn proxy_header(bytes: &[u8]) {
    let whole = parse(bytes);
    for cut in cuts(bytes.len()) {
        match parse(&bytes[..cut]) {
            Ok(ProxyPreface::Incomplete { missing }) => {
                assert!(missing > 0 && cut + missing <= MAX_PROXY_HEADER_LEN);
                let complete = matches!(&whole, Ok(ProxyPreface::Complete { len, .. }) if cut + missing > *len);
                assert!(!complete, "{missing} bytes were said to be missing after {cut}");
            }
            Err(fault) => assert!(whole.is_err(), "{fault} after {cut} bytes, and then {whole:?}"),
            answer @ Ok(ProxyPreface::Complete { .. }) => assert_eq!(answer, whole, "after {cut} bytes"),
        }
    }
    if let Ok(ProxyPreface::Complete { header, len }) = whole {
        assert!(len <= bytes.len());
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let written = header.encode(version);
            let Ok(ProxyPreface::Complete { header: read, len }) = parse(&written) else { panic!("{written:?}") };
            assert_eq!(len, written.len());
            assert_eq!(read.addresses.is_some(), header.addresses.is_some());
            assert_eq!(read.encode(version), written);
        }
    }
}

/// Whatever a file holds, it is read or complained about, with the line.
pub(crate) fn manifest(bytes: &[u8]) {
    let file: Arc<str> = "fuzz.yaml".into();
    let contents = manifest::read(&file, &String::from_utf8_lossy(bytes));
    drop(contents);
}
