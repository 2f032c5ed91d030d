//! What the shell remembers from one run to the next.

use std::path::Path;

use crate::sockets::AddressBook;
use crate::state::{Secrecy, StateDirectory, StateError, peek};
use crate::world::Claims;

const CLAIMS: &str = "claims.json";
const ADDRESSES: &str = "addresses.json";

/// Who was granted what, and which Gateway has which address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// By owner.
    pub claims: Claims,
    /// By Gateway.
    pub addresses: AddressBook,
}

impl Records {
    /// What a state directory holds, whoever uses it now; nothing where there is none.
    pub fn peek(path: &Path) -> Result<Self, StateError> {
        Ok(Self {
            claims: peek(path, CLAIMS)?.unwrap_or_default(),
            addresses: peek(path, ADDRESSES)?.unwrap_or_default(),
        })
    }

    /// Writes what differs from what was `saved` last, and remembers it there.
    pub fn save(&self, state: &StateDirectory, saved: &mut Self) -> Result<(), StateError> {
        if self.claims != saved.claims {
            state.write(CLAIMS, Secrecy::Public, &self.claims)?;
            saved.claims.clone_from(&self.claims);
        }
        if self.addresses != saved.addresses {
            state.write(ADDRESSES, Secrecy::Public, &self.addresses)?;
            saved.addresses.clone_from(&self.addresses);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_written_when_they_change_and_read_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        assert_eq!(Records::peek(&path).unwrap(), Records::default());
        let state = StateDirectory::open(&path).unwrap();
        let mut saved = Records::peek(&path).unwrap();
        let mut records = saved.clone();
        records.save(&state, &mut saved).unwrap();
        assert!(!path.join(CLAIMS).exists(), "nothing to say");
        records.claims.insert("NebariApp/team/hub".into(), json!([{"port": 443}]));
        records.addresses.insert("a/g".into(), "127.0.0.1".parse().unwrap());
        records.save(&state, &mut saved).unwrap();
        assert_eq!(saved, records);
        // Somebody else may look while it is in use.
        assert_eq!(Records::peek(&path).unwrap(), records);
    }
}
