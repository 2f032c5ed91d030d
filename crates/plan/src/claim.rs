//! The one primitive: what an owner wants to hold, and what it was told.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use portreeve_names::HostPattern;

/// Names a Gateway. `Ord` by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayName {
    /// Where it is.
    pub namespace: Arc<str>,
    /// What it is called there.
    pub name: Arc<str>,
}

/// What kind of object wants something. `Ord` settles what age does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// A NebariApp.
    NebariApp,
    /// A Tenant.
    Tenant,
}

/// Who wants something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its kind.
    pub kind: OwnerKind,
    /// Where it is; empty for a Tenant, which is cluster-scoped.
    pub namespace: Arc<str>,
    /// What it is called.
    pub name: Arc<str>,
    /// When it was made; absent counts as newest.
    pub created: Option<Timestamp>,
}

/// One thing that an owner wants: a name, a place on a Gateway, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who wants it.
    pub owner: Arc<Owner>,
    /// Its place among the claims of its owner, as the owner wrote them; no two of one owner share a place.
    pub position: usize,
    /// The name, or every name of a port. [`HostPattern::Any`] claims no name, only its seat.
    pub hosts: HostPattern,
    /// How long the owner has held the name.
    pub name_held: Incumbency,
    /// Where it is to be served; absent where the owner may only keep the name, since what it asks for is refused for
    /// another reason.
    pub seat: Option<Seat>,
}

/// A place on a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The Gateway.
    pub gateway: GatewayName,
    /// Its port.
    pub port: u16,
    /// How the port is used.
    pub usage: Usage,
    /// How long the owner has held this port.
    pub port_held: Incumbency,
}

/// What a claim does on its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// A section of the Gateway that others use too; any number of claims may borrow one for the same name.
    Borrowed,
    /// A listener of its own beside others.
    Shared,
    /// A listener of its own that admits no listener of another owner beside it.
    Exclusive,
    /// A [`Usage::Shared`] listener that is an entry of the Gateway itself and takes one of its places.
    Entry,
}

/// How long something has been held. `Ord`: who comes first is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Incumbency {
    /// The owner's status records this very grant.
    Since(Timestamp),
    /// It records a wider one, of which this is a part. It comes after every grant of its own, or what is granted next
    /// to it today would give way to it tomorrow.
    Within(Timestamp),
    /// No record, but a listener of the operators that Portreeve replaces serves it.
    Legacy,
    /// It is wanted for the first time.
    None,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The owner holds what it asked for.
    Granted,
    /// The name belongs to the owner of the claim with this index.
    NameTaken(usize),
    /// The name is the owner's, the port is held by the claim with this index.
    PortTaken(usize),
    /// Name and port are the owner's, but the claim with this index, of the same group, has that very listener.
    Duplicate(usize),
    /// The Gateway has no place left for another listener.
    GatewayFull,
}

impl GatewayName {
    /// Names a Gateway.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Owner {
    /// Whose claims count as one owner's: those of one namespace, or of one tenant.
    pub fn group(&self) -> (OwnerKind, &str) {
        match self.kind {
            OwnerKind::NebariApp => (self.kind, &self.namespace),
            OwnerKind::Tenant => (self.kind, &self.name),
        }
    }

    /// The older owner first, then kind, namespace and name.
    pub(crate) fn by_age(&self, other: &Self) -> Ordering {
        let key = |owner: &Self| (owner.created.is_none(), owner.created);
        let name = (self.kind, &self.namespace, &self.name);
        key(self).cmp(&key(other)).then_with(|| name.cmp(&(other.kind, &other.namespace, &other.name)))
    }
}

impl Claim {
    /// Whether this claim and `other` belong to one owner.
    pub fn same_group(&self, other: &Self) -> bool {
        self.owner.group() == other.owner.group()
    }
}

impl Incumbency {
    /// Since when, if the owner's status says so.
    pub fn recorded(self) -> Option<Timestamp> {
        match self {
            Self::Since(since) | Self::Within(since) => Some(since),
            Self::Legacy | Self::None => None,
        }
    }
}

impl Verdict {
    /// Whether the name is the owner's, whatever became of its place.
    pub fn holds_name(self) -> bool {
        !matches!(self, Self::NameTaken(_))
    }
}

impl std::fmt::Display for GatewayName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
