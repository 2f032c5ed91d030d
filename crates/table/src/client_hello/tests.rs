use std::sync::Arc;

use proptest::prelude::*;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use super::*;

const NAMELESS: Hello = Hello::Complete { server_name: None };

fn named(text: &str) -> Hello {
    Hello::Complete { server_name: Some(Hostname::parse(text).unwrap()) }
}

// === Material ===

/// What a rustls client sends first.
fn rustls_hello(server: &str, sni: bool, alpn: &[&str]) -> Vec<u8> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NoVerifier))
        .with_no_client_auth();
    config.enable_sni = sni;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(server.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

#[derive(Debug)]
struct NoVerifier;

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        unreachable!("only the first flight is made")
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only the first flight is made")
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only the first flight is made")
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

fn vector(width: usize, content: &[u8]) -> Vec<u8> {
    let len = content.len().to_be_bytes();
    [&len[len.len() - width..], content].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, data)].concat()
}

fn name_entry(kind: u8, name: &str) -> Vec<u8> {
    [&[kind][..], &vector(2, name.as_bytes())].concat()
}

fn sni(name: &str) -> Vec<u8> {
    extension(0, &vector(2, &name_entry(0, name)))
}

/// A ClientHello message with these extensions, or without the whole block.
fn message(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = [&[3, 3][..], &[7; 32], &vector(1, &[9; 32]), &vector(2, &[0x13, 0x01]), &vector(1, &[0])].concat();
    body.extend(extensions.map(|extensions| vector(2, extensions)).unwrap_or_default());
    [&[1][..], &vector(3, &body)].concat()
}

/// The message in records of at most `fragment_len` bytes each.
fn records(message: &[u8], fragment_len: usize) -> Vec<u8> {
    message.chunks(fragment_len).flat_map(|fragment| [&[22, 3, 1][..], &vector(2, fragment)].concat()).collect()
}

fn hello(extensions: &[u8]) -> Vec<u8> {
    records(&message(Some(extensions)), MAX_FRAGMENT_LEN)
}

/// Every true prefix is incomplete and never claims to miss more than there is; the whole is `expected`.
fn check_all_prefixes(bytes: &[u8], expected: &Hello) {
    for len in 0..bytes.len() {
        match server_name(&bytes[..len]) {
            Ok(Hello::Incomplete { missing }) => assert!((1..=bytes.len() - len).contains(&missing), "prefix {len}"),
            other => panic!("prefix {len}: {other:?}"),
        }
    }
    assert_eq!(server_name(bytes).as_ref(), Ok(expected));
}

// === What is right ===

#[test]
fn a_real_hello_says_its_name() {
    let bytes = rustls_hello("daskgateway-jhub.0123456789abcdef", true, &["h2"]);
    check_all_prefixes(&bytes, &named("daskgateway-jhub.0123456789abcdef"));
}

#[test]
fn a_hello_without_a_name_has_none() {
    check_all_prefixes(&rustls_hello("a.example.com", false, &[]), &NAMELESS);
    check_all_prefixes(&hello(&[]), &NAMELESS);
    check_all_prefixes(&records(&message(None), 100), &NAMELESS);
    check_all_prefixes(&hello(&extension(0, &vector(2, &name_entry(9, "not a host name")))), &NAMELESS);
}

/// Origin: pains row 5. However the hello is cut into records, it is the same hello.
#[test]
fn records_may_end_anywhere() {
    let whole = message(Some(&sni("a.example.com")));
    for fragment_len in 1..=whole.len() {
        check_all_prefixes(&records(&whole, fragment_len), &named("a.example.com"));
    }
}

/// Origin: pains row 5. Hellos with post-quantum key shares and more do not fit in one record.
#[test]
fn a_hello_may_be_larger_than_a_record() {
    let padding = extension(21, &vec![0; 40_000]);
    let bytes = hello(&[padding, sni("a.example.com")].concat());
    assert!(bytes.len() > 2 * MAX_FRAGMENT_LEN);
    assert_eq!(server_name(&bytes), Ok(named("a.example.com")));
    assert!(matches!(server_name(&bytes[..bytes.len() - 1]), Ok(Hello::Incomplete { missing: 1 })));
}

/// The less often one asks, the less a client that drips can cost.
#[test]
fn what_is_missing_is_as_much_as_can_be_known() {
    assert_eq!(server_name(&[]), Ok(Hello::Incomplete { missing: 9 }), "both headers");
    let whole = message(Some(&sni("a.example.com")));
    for fragment_len in [whole.len(), whole.len() - 1, whole.len() / 2 + 1] {
        let bytes = records(&whole, fragment_len);
        for len in 9..bytes.len() {
            assert_eq!(server_name(&bytes[..len]), Ok(Hello::Incomplete { missing: bytes.len() - len }), "{len}");
        }
    }
}

/// Origin: pains row 21.
#[test]
fn case_and_the_trailing_dot_do_not_matter() {
    assert_eq!(server_name(&hello(&sni("A.Example.COM."))), Ok(named("a.example.com")));
}

/// Origin: pains row 30. GREASE (RFC 8701) and ECH are extensions like any other, and the outer name counts.
#[test]
fn unknown_extensions_are_passed_over() {
    let extensions = [
        extension(0x0a0a, &[]),
        extension(0xfe0d, &[0; 300]),
        sni("public.example.com"),
        extension(0xfafa, &[0]),
        extension(0xfe0d, &[1; 9]),
    ];
    check_all_prefixes(&hello(&extensions.concat()), &named("public.example.com"));
}

#[test]
fn an_address_is_not_a_name() {
    for address in ["192.0.2.7", "2001:db8::7", "192.0.2.7."] {
        assert_eq!(server_name(&hello(&sni(address))), Ok(NAMELESS), "{address}");
    }
}

#[test]
fn what_follows_the_hello_is_not_looked_at() {
    let early_data = [hello(&sni("a.example.com")), vec![23, 3, 3, 0, 1, 0]].concat();
    assert_eq!(server_name(&early_data), Ok(named("a.example.com")));
    let same_record = records(&[message(Some(&sni("a.example.com"))), vec![20, 0, 0, 0]].concat(), 1000);
    assert_eq!(server_name(&same_record), Ok(named("a.example.com")));
}

// === What is wrong ===

#[test]
fn other_protocols_are_noticed_with_the_first_bytes() {
    assert_eq!(server_name(b"G"), Err(InvalidHello::NotTls));
    assert_eq!(server_name(b"SSH-2.0-OpenSSH"), Err(InvalidHello::NotTls));
    assert_eq!(server_name(&[0x80, 0x2e, 0x01]), Err(InvalidHello::NotTls));
    assert_eq!(server_name(&[21, 3, 1, 0, 2]), Err(InvalidHello::NotTls));
    assert_eq!(server_name(&[22, 2]), Err(InvalidHello::NotTls));
    assert_eq!(server_name(&[22, 3, 1, 0, 4, 2]), Err(InvalidHello::NotClientHello));
}

#[test]
fn record_lengths_have_bounds() {
    assert_eq!(server_name(&[22, 3, 1, 0, 0]), Err(InvalidHello::Malformed));
    assert_eq!(server_name(&[22, 3, 1, 0x40, 0x01]), Err(InvalidHello::Malformed));
}

/// The announced length is enough to refuse; nobody gets to fill the buffer first.
#[test]
fn a_hello_that_is_too_large_is_refused_at_its_announcement() {
    assert_eq!(server_name(&[22, 3, 1, 0x40, 0, 1, 1, 0, 0]), Err(InvalidHello::TooLarge));
    let wasteful = records(&[&[1, 0, 0xf0, 0][..], &vec![0; 30_000]].concat(), 1);
    assert_eq!(server_name(&wasteful), Err(InvalidHello::TooLarge));
}

#[test]
fn a_name_said_twice_is_refused() {
    let two_extensions = [sni("a.example.com"), sni("b.example.com")].concat();
    assert_eq!(server_name(&hello(&two_extensions)), Err(InvalidHello::Malformed));
    let two_entries = [name_entry(0, "a.example.com"), name_entry(0, "b.example.com")].concat();
    assert_eq!(server_name(&hello(&extension(0, &vector(2, &two_entries)))), Err(InvalidHello::Malformed));
}

#[test]
fn lengths_that_do_not_add_up_are_refused() {
    let good = sni("a.example.com");
    for (what, extensions) in [
        ("an extension cut short", &good[..good.len() - 1]),
        ("bytes after the name list", &extension(0, &[vector(2, &name_entry(0, "a")), vec![0]].concat())),
        ("a name longer than its list", &extension(0, &[0, 4, 0, 0, 9, b'a'])),
        ("no name list at all", &extension(0, &[])),
    ] {
        assert_eq!(server_name(&hello(extensions)), Err(InvalidHello::Malformed), "{what}");
    }
    let trailing = [&[1][..], &vector(3, &[&message(Some(&good))[4..], &[0]].concat())].concat();
    assert_eq!(server_name(&records(&trailing, 1000)), Err(InvalidHello::Malformed));
    assert_eq!(server_name(&records(&[1, 0, 0, 0], 1000)), Err(InvalidHello::Malformed));
}

#[test]
fn a_name_must_be_a_host_name() {
    for text in ["", "a_b.example.com", "a b", "*.example.com", "a..b", "\u{e9}.example.com"] {
        assert_eq!(server_name(&hello(&sni(text))), Err(InvalidHello::BadServerName), "{text}");
    }
    let not_text = extension(0, &vector(2, &[0, 0, 1, 0xff]));
    assert_eq!(server_name(&hello(&not_text)), Err(InvalidHello::BadServerName));
}

// === Laws ===

/// What rustls makes of the same bytes.
fn rustls_server_name(bytes: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    acceptor.read_tls(&mut &bytes[..]).ok()?;
    let accepted = acceptor.accept().ok()??;
    accepted.client_hello().server_name().map(str::to_owned)
}

proptest! {
    #[test]
    fn rustls_reads_the_same_name(
        server in "[a-zA-Z0-9]{1,20}(\\.[a-z0-9]{1,10}){0,4}\\.[a-z]{2,5}",
        sni in any::<bool>(),
        alpn in prop::sample::subsequence(vec!["h2", "http/1.1"], 0..=2),
    ) {
        let bytes = rustls_hello(&server, sni, &alpn);
        let expected = rustls_server_name(&bytes).map(|name| Hostname::parse(&name).unwrap());
        prop_assert_eq!(expected.is_some(), sni);
        prop_assert_eq!(server_name(&bytes), Ok(Hello::Complete { server_name: expected }));
    }

    /// A caller that waits for `missing` bytes each time gets the same answer as one that asks at every byte.
    #[test]
    fn waiting_for_what_is_missing_is_safe_and_quick(fragment_len in 1usize..600, padding in 0usize..3000) {
        let extensions = [extension(21, &vec![0; padding]), sni("a.example.com")].concat();
        let bytes = records(&message(Some(&extensions)), fragment_len);
        let (mut len, mut questions) = (0, 0);
        let answer = loop {
            questions += 1;
            match server_name(&bytes[..len]).unwrap() {
                Hello::Incomplete { missing } => len += missing,
                complete @ Hello::Complete { .. } => break complete,
            }
        };
        prop_assert_eq!(answer, named("a.example.com"));
        prop_assert_eq!(len, bytes.len());
        prop_assert!(questions < 70, "{} questions", questions);
    }

    #[test]
    fn nonsense_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = server_name(&bytes);
        let _ = server_name(&records(&bytes, 50));
        let _ = server_name(&records(&[&[1][..], &vector(3, &bytes)].concat(), 50));
        let _ = server_name(&hello(&bytes));
    }

    /// A damaged hello is never waited for beyond the limit.
    #[test]
    fn damage_never_panics_and_never_asks_for_too_much(
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = rustls_hello("a.example.com", true, &["h2"]);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let cut = cut.index(bytes.len() + 1);
        if let Ok(Hello::Incomplete { missing }) = server_name(&bytes[..cut]) {
            prop_assert!(missing > 0 && cut + missing <= MAX_CLIENT_HELLO_LEN);
        }
    }
}

// === Captured hellos ===

/// What clients sent to a socket: OpenSSL 3.0, curl 7.88, Python 3, Go 1.26 with and without post-quantum key shares, Java 17,
/// Node 20, Chromium 156 (GREASE, ECH, post-quantum key shares, shuffled extensions).
fn captured() -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/client_hello");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let named = files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path));
    // What fuzzing found is no client's.
    let captured = named.filter(|(name, _)| !name.starts_with("found-"));
    captured.map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
}

/// Origin: pains rows 5 and 30. Every prefix of every client's hello, as it came.
#[test]
fn captured_hellos_say_their_name() {
    let captured = captured();
    assert!(captured.len() >= 17, "{} hellos", captured.len());
    for (client, bytes) in captured {
        println!("{client}");
        let expected = if client == "openssl-3-no-name" { NAMELESS } else { named("scheduler.example.com") };
        check_all_prefixes(&bytes, &expected);
        let rustls_name = rustls_server_name(&bytes).map(|name| Hostname::parse(&name).unwrap());
        // rustls does not speak TLS 1.0, and some of these offer nothing that it takes.
        if rustls_name.is_some() {
            assert_eq!(Hello::Complete { server_name: rustls_name }, expected, "{client}");
        }
    }
}

/// However a client's stack cuts its hello into records, it says the same.
#[test]
fn captured_hellos_may_be_cut_anywhere() {
    for (client, bytes) in captured() {
        let expected = server_name(&bytes).unwrap();
        let message = messages(&bytes);
        for fragment_len in [1, 2, 3, 7, 64, 255, 512, 1200, message.len() - 1] {
            assert_eq!(
                server_name(&records(&message, fragment_len)).as_ref(),
                Ok(&expected),
                "{client} {fragment_len}"
            );
        }
        for first in 1..message.len() {
            let two = [records(&message[..first], MAX_FRAGMENT_LEN), records(&message[first..], MAX_FRAGMENT_LEN)];
            assert_eq!(server_name(&two.concat()).as_ref(), Ok(&expected), "{client}, cut at {first}");
        }
    }
}

/// What is in the records.
fn messages(mut bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER_LEN>() {
        let (fragment, next) = rest.split_at(usize::from(u16::from_be_bytes([header[3], header[4]])));
        message.extend_from_slice(fragment);
        bytes = next;
    }
    message
}
