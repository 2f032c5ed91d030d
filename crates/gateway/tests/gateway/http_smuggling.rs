//! Requests that one server reads like this and another like that.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backends::http;
use crate::bed::{Bed, http_port, http_routes, soon, to};

async fn serving() -> (Bed, SocketAddr) {
    Bed::serving(http_port([("*", http_routes([("/", to(&[http("app").await]))]))])).await
}

/// Everything that is answered to these bytes, until the gateway closes.
async fn answers(address: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    let _ = soon(client.read_to_end(&mut heard)).await;
    String::from_utf8_lossy(&heard).into_owned()
}

/// Each of these is refused, and nothing after it on the connection is taken for a request.
#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused() {
    let (_bed, address) = serving().await;
    for (what, head) in [
        ("bare CR in a value", "GET / HTTP/1.1\r\nHost: a.com\r\nX-A: b\rX-C: d\r\n\r\n"),
        ("bare CR as a line end", "GET / HTTP/1.1\rHost: a.com\r\r"),
        ("folded header", "GET / HTTP/1.1\r\nHost: a.com\r\nX-A: b\r\n c\r\n\r\n"),
        ("folded coding", "POST / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
        ("blank before the colon", "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length : 5\r\n\r\nhello"),
        ("blank before the name", "GET / HTTP/1.1\r\n Host: a.com\r\n\r\n"),
        ("two lengths", "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
        ("a list of lengths", "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 5, 6\r\n\r\nhello"),
        ("a signed length", "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: +5\r\n\r\nhello"),
        ("a negative length", "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: -5\r\n\r\nhello"),
        ("a length in hexadecimal", "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 0x5\r\n\r\nhello"),
        ("an unknown coding", "POST / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        (
            "chunked before another",
            "POST / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        ),
        ("chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("NUL in a value", "GET / HTTP/1.1\r\nHost: a.com\r\nX-A: b\0c\r\n\r\n"),
        ("two hosts", "GET / HTTP/1.1\r\nHost: a.com\r\nHost: b.com\r\n\r\n"),
        ("no host", "GET / HTTP/1.1\r\nX-A: b\r\n\r\n"),
        ("a version of its own", "GET / HTTP/1.2\r\nHost: a.com\r\n\r\n"),
        ("blanks in the path", "GET /a b HTTP/1.1\r\nHost: a.com\r\n\r\n"),
    ] {
        let heard = answers(address, format!("{head}GET /smuggled HTTP/1.1\r\nHost: a.com\r\n\r\n").as_bytes()).await;
        assert!(!heard.contains("200 OK") && !heard.contains("app"), "{what}: {heard}");
    }
}

/// RFC 9112, section 6.3: the coding counts, the length goes, and the connection ends with this request.
#[tokio::test]
async fn of_a_length_and_a_coding_the_backend_sees_one_and_nothing_follows() {
    let (_bed, address) = serving().await;
    for lengths in
        ["Content-Length: 4\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 4"]
    {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a.com\r\n{lengths}\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.com\r\n\r\n"
        );
        let heard = answers(address, request.as_bytes()).await;
        assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{heard}");
        assert!(
            heard.contains("POST /\n") && heard.contains("hello") && !heard.contains("content-length: 4"),
            "{heard}"
        );
        assert!(!heard.contains("smuggled"), "{heard}");
    }
}

/// What a chunk's size line may hold.
#[tokio::test]
async fn chunks_that_can_be_read_in_two_ways_are_refused() {
    let (_bed, address) = serving().await;
    for chunk in [
        "5 5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
        let heard = answers(address, request.as_bytes()).await;
        assert!(!heard.contains("200 OK"), "{chunk:?}: {heard}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let (_bed, address) = serving().await;
    let request = format!("GET / HTTP/1.1\r\nHost: a.com\r\nX-A: {}\r\n\r\n", "b".repeat(70_000));
    let heard = answers(address, request.as_bytes()).await;
    assert!(heard.starts_with("HTTP/1.1 431"), "{heard}");
}
