//! What browsers keep for the gateway, so that they can neither read nor change it.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portreeve_table::Login;

/// What the keys of all cookies are made from. Whoever has it can sign in as anybody.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret([u8; SessionSecret::LEN]);

/// What something sealed is for, so that it is of no use for anything else.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Session,
    Attempt,
}

/// The key of the cookies of one policy.
pub(super) struct Seal(RandomizedNonceKey);

impl SessionSecret {
    /// How many bytes it has.
    pub const LEN: usize = 32;

    /// The one of these bytes, which must be random.
    pub fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// A new one: nobody stays signed in. Fails where the system has no randomness.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Its bytes, to be kept where nobody reads them.
    pub fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The length of a key for [`AES_256_GCM`].
struct KeyLen;

impl KeyType for KeyLen {
    fn len(&self) -> usize {
        AES_256_GCM.key_len()
    }
}

impl Seal {
    /// Another policy, another provider or another client has another key.
    pub(super) fn of(secret: &SessionSecret, login: &Login) -> Option<Self> {
        let whose: [&[u8]; 5] =
            [login.id.as_bytes(), b"\n", login.provider.issuer.as_bytes(), b"\n", login.client_id.as_bytes()];
        let mut key = [0; 32];
        let pseudorandom = Salt::new(HKDF_SHA256, b"portreeve sign-in").extract(&secret.0);
        pseudorandom.expand(&whose, KeyLen).and_then(|expanded| expanded.fill(&mut key)).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM, &key).ok().map(Self)
    }

    pub(super) fn close(&self, purpose: Purpose, plain: Vec<u8>) -> Option<String> {
        let mut sealed = plain;
        let nonce = self.0.seal_in_place_append_tag(purpose.aad(), &mut sealed).ok()?;
        let mut all = nonce.as_ref().to_vec();
        all.append(&mut sealed);
        Some(URL_SAFE_NO_PAD.encode(all))
    }

    /// Nothing, unless it was closed with the same key for the same purpose.
    pub(super) fn open(&self, purpose: Purpose, sealed: &str) -> Option<Vec<u8>> {
        let mut all = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let nonce: [u8; NONCE_LEN] = all.get(..NONCE_LEN)?.try_into().ok()?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened: Result<&mut [u8], Unspecified> =
            self.0.open_in_place(nonce, purpose.aad(), all.get_mut(NONCE_LEN..)?);
        opened.ok().map(|plain| plain.to_vec())
    }
}

impl Purpose {
    fn aad(self) -> Aad<&'static [u8]> {
        Aad::from(match self {
            Self::Session => b"session",
            Self::Attempt => b"attempt",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::tests::login;

    #[test]
    fn only_what_was_sealed_here_for_this_can_be_opened() {
        let secret = SessionSecret::random().unwrap();
        let seal = Seal::of(&secret, &login()).unwrap();
        let sealed = seal.close(Purpose::Session, b"alice".to_vec()).unwrap();
        assert_eq!(seal.open(Purpose::Session, &sealed).unwrap(), b"alice");
        assert_eq!(seal.open(Purpose::Attempt, &sealed), None, "for another purpose");
        let others = [
            Login { id: "team/other".into(), ..login() },
            Login { client_id: "other".to_owned(), ..login() },
            Login {
                provider: portreeve_table::Provider { issuer: "https://other".to_owned(), ..login().provider },
                ..login()
            },
        ];
        for other in others {
            assert_eq!(Seal::of(&secret, &other).unwrap().open(Purpose::Session, &sealed), None, "{other:?}");
        }
        let elsewhere = Seal::of(&SessionSecret::random().unwrap(), &login()).unwrap();
        assert_eq!(elsewhere.open(Purpose::Session, &sealed), None, "of another gateway");
        for place in 0..sealed.len() {
            let mut tampered = sealed.clone().into_bytes();
            tampered[place] = if tampered[place] == b'A' { b'B' } else { b'A' };
            assert_eq!(seal.open(Purpose::Session, &String::from_utf8(tampered).unwrap()), None, "byte {place}");
        }
        for cut in ["", "AAAA", &sealed[..20]] {
            assert_eq!(seal.open(Purpose::Session, cut), None);
        }
    }
}
