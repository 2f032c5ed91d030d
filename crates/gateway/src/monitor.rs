use std::fmt;
use std::sync::Arc;

use portreeve_table::Table;

use crate::observe::Places;
use crate::shared::Shared;
use crate::tunnels::OpenTunnel;

/// A look at a gateway from outside. It keeps nothing open, and is of no use once the gateway has ended.
#[derive(Clone)]
pub struct Monitor(pub(crate) Arc<Shared>);

impl Monitor {
    /// What is served at this moment.
    pub fn table(&self) -> Arc<Table> {
        self.0.installed().table.clone()
    }

    /// How many client connections there are.
    pub fn connections(&self) -> Places {
        self.0.admission.taken()
    }

    /// Every open tunnel, the oldest first.
    pub fn tunnels(&self) -> Vec<OpenTunnel> {
        self.0.tunnels.list_open()
    }

    /// Whether the gateway has begun to shut down.
    pub fn is_draining(&self) -> bool {
        self.0.tasks.draining.is_cancelled()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.connections()).finish()
    }
}
