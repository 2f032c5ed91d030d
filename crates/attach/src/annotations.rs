//! What can be said beyond Gateway API: annotations of Gateways and Services, and TLS options of listeners.
//!
//! docs/gateway.md has them all. What cannot be read is never guessed: the reader's caller says what then happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portreeve_table::proxy_protocol::ProxyVersion;
use portreeve_table::{AddressBlock, BackendOptions, Balance};

use crate::duration;

/// Of a Gateway: who must send PROXY protocol headers, as blocks of addresses by port: `{"443": ["10.0.0.0/8"]}`.
const PROXY_PROTOCOL_FROM: &str = "portreeve.dev/proxy-protocol-from";
/// Of a Service: `v1` or `v2`.
const SEND_PROXY_PROTOCOL: &str = "portreeve.dev/send-proxy-protocol";
/// Of a Service: `even` or `least-connections`.
const BALANCE: &str = "portreeve.dev/balance";
/// A TLS option of a listener: after how long without a byte a tunnel is closed, like `1h` (GEP-2257).
const IDLE_TIMEOUT: &str = "portreeve.dev/idle-timeout";

/// A setting that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is '{value}'; it must be {expected}")]
pub(crate) struct BadSetting {
    setting: &'static str,
    value: String,
    expected: &'static str,
}

/// Who must send PROXY protocol headers to a Gateway, by port.
pub(crate) fn proxies(gateway: &ObjectMeta) -> Result<BTreeMap<u16, Arc<[AddressBlock]>>, BadSetting> {
    let Some(text) = annotation(gateway, PROXY_PROTOCOL_FROM) else { return Ok(BTreeMap::new()) };
    let bad = || BadSetting {
        setting: PROXY_PROTOCOL_FROM,
        value: text.to_owned(),
        expected: "blocks of addresses by port, like {\"443\": [\"10.0.0.0/8\"]}",
    };
    let ports: BTreeMap<u16, Vec<String>> = serde_json::from_str(text).map_err(|_| bad())?;
    let blocks = |blocks: Vec<String>| {
        blocks.iter().map(|block| block.parse::<AddressBlock>().map_err(|_| bad())).collect::<Result<_, _>>()
    };
    ports.into_iter().map(|(port, texts)| Ok((port, blocks(texts)?))).collect()
}

/// How a Service wants to be spoken to.
pub(crate) fn backend_options(service: &ObjectMeta) -> Result<BackendOptions, BadSetting> {
    let balance = match annotation(service, BALANCE) {
        None | Some("even") => Balance::Even,
        Some("least-connections") => Balance::LeastConnections,
        Some(value) => return Err(bad(BALANCE, value, "'even' or 'least-connections'")),
    };
    let proxy_protocol = match annotation(service, SEND_PROXY_PROTOCOL) {
        None => None,
        Some("v1") => Some(ProxyVersion::V1),
        Some("v2") => Some(ProxyVersion::V2),
        Some(value) => return Err(bad(SEND_PROXY_PROTOCOL, value, "'v1' or 'v2'")),
    };
    Ok(BackendOptions { balance, proxy_protocol, http2: false })
}

/// After how long without a byte a listener's tunnels are closed.
pub(crate) fn idle_timeout(options: &BTreeMap<String, String>) -> Result<Option<Duration>, BadSetting> {
    let Some(value) = options.get(IDLE_TIMEOUT) else { return Ok(None) };
    let duration = duration::parse(value).filter(|duration| !duration.is_zero());
    duration.map(Some).ok_or_else(|| bad(IDLE_TIMEOUT, value, "a duration, like 1h or 30m"))
}

/// The TLS options that mean nothing here.
pub(crate) fn unknown_options(options: &BTreeMap<String, String>) -> Vec<&str> {
    options.keys().map(String::as_str).filter(|key| *key != IDLE_TIMEOUT).collect()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn bad(setting: &'static str, value: &str, expected: &'static str) -> BadSetting {
    BadSetting { setting, value: value.to_owned(), expected }
}
