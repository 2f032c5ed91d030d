//! The Secrets that are watched one by one: those that owners name and that are not of type `kubernetes.io/tls`.

use std::collections::BTreeSet;

use portreeve_api::names::{nebari_app, tenant};

use super::cache::{Cache, Store};
use super::kind::{KindName, Typed};
use super::{Key, Object};

/// The most that are watched one by one, since each costs a connection. Owners beyond that are told that theirs is not
/// there, and the log says why.
const MOST: usize = 500;

/// The Secrets that owners name, without those that are watched anyway; at most [`MOST`], of which those that are
/// `watched` already come first. None before it is known what is watched anyway.
pub(crate) fn needed(cache: &Cache, watched: &BTreeSet<Key>) -> BTreeSet<Key> {
    if !cache.store(KindName::Secret).is_some_and(|store| store.is_synced) {
        return watched.clone();
    }
    let owners = [KindName::NebariApp, KindName::Tenant].into_iter().filter_map(|kind| cache.store(kind));
    let named = owners.flat_map(Store::entries).flat_map(|(key, entry)| match &entry.object {
        Object::Readable(typed) => named(key, typed),
        Object::Unreadable(_) => Vec::new(),
    });
    let named: BTreeSet<Key> = named.filter(|key| cache.get(KindName::Secret, key).is_none()).collect();
    if named.len() > MOST {
        tracing::warn!(named = named.len(), most = MOST, "owners name more Secrets than are watched one by one");
    }
    let (known, new): (Vec<Key>, Vec<Key>) = named.into_iter().partition(|key| watched.contains(key));
    known.into_iter().chain(new).take(MOST).collect()
}

fn named(key: &Key, owner: &Typed) -> Vec<Key> {
    let in_namespace = |namespace: &str, name: String| Key { namespace: namespace.to_owned(), name };
    match owner {
        Typed::NebariApp(app) => {
            let tls = app.spec.routing.as_ref().and_then(|routing| routing.tls.as_ref()?.secret_name.clone());
            let signs_in = app.spec.auth.as_ref().is_some_and(|auth| auth.enabled);
            let client = signs_in.then(|| nebari_app::oidc_client_secret(&key.name));
            let named =
                app.spec.auth.as_ref().filter(|auth| auth.enabled).and_then(|auth| auth.client_secret_ref.clone());
            tls.into_iter().chain(client).chain(named).map(|name| in_namespace(&key.namespace, name)).collect()
        }
        Typed::Tenant(found) => {
            let namespace = found.spec.target_namespace.clone().unwrap_or_else(|| tenant::default_namespace(&key.name));
            vec![in_namespace(&namespace, tenant::kubeconfig_secret(&key.name))]
        }
        _ => Vec::new(),
    }
}
