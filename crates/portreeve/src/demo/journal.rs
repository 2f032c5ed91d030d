//! What the gateway reported about each connection, found again by the client's address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use portreeve_gateway::{AccessRecord, Observer};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long the gateway may take to report a connection that its client has seen the end of.
const DEADLINE: Duration = Duration::from_secs(5);

/// Keeps the last record of each client address.
#[derive(Default)]
pub(super) struct Journal {
    // Held for one insertion or look-up, never across an await.
    records: Mutex<HashMap<SocketAddr, AccessRecord>>,
    news: Notify,
}

impl Journal {
    /// The record of the connection or request that came from `client`; `None` if the gateway never reports it.
    pub(super) async fn of(&self, client: SocketAddr) -> Option<AccessRecord> {
        let reported = async {
            loop {
                let news = self.news.notified();
                if let Some(record) = self.find(client) {
                    return record;
                }
                news.await;
            }
        };
        timeout(DEADLINE, reported).await.ok()
    }

    fn find(&self, client: SocketAddr) -> Option<AccessRecord> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).get(&client).cloned()
    }
}

impl Observer for Journal {
    fn finished(&self, record: &AccessRecord) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).insert(record.peer, record.clone());
        self.news.notify_waiters();
    }
}
