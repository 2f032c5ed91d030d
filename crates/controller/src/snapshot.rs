//! A cluster as it is at one moment, for those who ask and do not stay.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use portreeve_plan::{Config, TlsRouteVersion, World};

use crate::dial::Dialled;
use crate::gather::gather;
use crate::reflect::cache::{Cache, Change};
use crate::reflect::discovery::{Choices, CustomResourceDefinition, Definitions, served};
use crate::reflect::kind::{Kind, KindName};
use crate::reflect::{Key, read, secrets};

/// How many objects a list has on one page.
const PAGE: u32 = 500;

/// A cluster at one moment. The lists of its kinds are not of one revision: what changes meanwhile may be seen in part.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What decisions may depend on, as the controller would have it.
    pub world: World,
    /// The kinds that could not be read, each with what the API server says.
    pub unread: BTreeMap<String, String>,
    /// The definitions of kinds of owners (apps, tenants) that the API server lacks.
    pub undefined: Vec<String>,
    /// Every object as the API server shows it, where that was asked for. Each is in the version in which it was read.
    pub objects: Vec<DynamicObject>,
}

/// Which cluster, and what the controller is, or would be, told there.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// What the platform has configured.
    pub config: Config,
    /// The version of TLSRoute to use where `v1` is not served.
    pub tls_routes: Option<TlsRouteVersion>,
    /// Whether tenants are served.
    pub tenants: bool,
    /// Whether [`Snapshot::objects`] is asked for. Decisions need less, and Secrets are in it with what they hold.
    pub whole: bool,
}

/// Reads everything that decisions need. What may not be read is left out, and said.
///
/// # Errors
///
/// When the API server cannot be reached, or does not let the definitions of kinds be read.
pub async fn snapshot(client: &Client, told: Circumstances, now: Timestamp) -> Result<Snapshot, kube::Error> {
    let choices = Choices { tls_routes: told.tls_routes, tenants: told.tenants, migration: true };
    let definitions = definitions(client).await?;
    let objects = told.whole.then(Vec::new);
    let mut reader = Reader { client, cache: Cache::default(), unread: BTreeMap::new(), objects };
    for (kind, version) in definitions.wanted(choices) {
        reader.read_kind(Kind::of(kind), version).await?;
    }
    for key in secrets::needed(&reader.cache, &BTreeSet::new()) {
        reader.read_secret(key).await?;
    }
    let Reader { cache, unread, objects, .. } = reader;
    let mut world = gather(&cache, &told.config, served(&cache, &definitions), now);
    Dialled::tell(None, &mut world);
    let owners = [KindName::NebariApp, KindName::Tenant].map(|kind| Kind::of(kind).definition());
    let undefined = owners.into_iter().filter(|definition| !definitions.serves(definition)).collect();
    Ok(Snapshot { world, unread, undefined, objects: objects.unwrap_or_default() })
}

async fn definitions(client: &Client) -> Result<Definitions, kube::Error> {
    let mut definitions = Definitions::default();
    let found: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in found.list(&ListParams::default()).await? {
        definitions.put(&definition);
    }
    Ok(definitions)
}

struct Reader<'c> {
    client: &'c Client,
    cache: Cache,
    unread: BTreeMap<String, String>,
    /// Absent where nobody asks for them.
    objects: Option<Vec<DynamicObject>>,
}

impl Reader<'_> {
    async fn read_kind(&mut self, kind: &'static Kind, version: &'static str) -> Result<(), kube::Error> {
        self.cache.start(kind.name, version);
        let found = self.list(kind, version).await?;
        if let Some(objects) = &mut self.objects {
            objects.extend(found.iter().cloned());
        }
        if let Some(store) = self.cache.store_mut(kind.name) {
            store.take(Change::ListStart);
            for object in found {
                let (key, entry) = read(kind, object);
                store.take(Change::Applied(key, entry));
            }
            store.take(Change::ListEnd);
        }
        Ok(())
    }

    /// All objects of a kind that the controller watches; none where that is not allowed.
    async fn list(&mut self, kind: &Kind, version: &str) -> Result<Vec<DynamicObject>, kube::Error> {
        let resource = kind.resource(version);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut page = ListParams::default().limit(PAGE);
        page.field_selector = kind.fields.map(str::to_owned);
        page.label_selector = kind.labels.map(str::to_owned);
        let mut found = Vec::new();
        loop {
            let list = match api.list(&page).await {
                Ok(list) => list,
                Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                    self.unread.insert(resource.kind.clone(), status.message.clone());
                    return Ok(Vec::new());
                }
                Err(error) => return Err(error),
            };
            page.continue_token = list.metadata.continue_.clone().filter(|token| !token.is_empty());
            for mut object in list {
                object.types = Some(types(&resource));
                found.push(object);
            }
            if page.continue_token.is_none() {
                return Ok(found);
            }
        }
    }

    /// A Secret that an owner names and that is not of the type that is listed. It is listed by its name, as the controller
    /// watches it: to `get` it would take another right.
    async fn read_secret(&mut self, key: Key) -> Result<(), kube::Error> {
        let kind = Kind::of(KindName::Secret);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &kind.resource("v1"));
        let list = match api.list(&ListParams::default().fields(&format!("metadata.name={}", key.name))).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                self.unread.insert(format!("Secret {}/{}", key.namespace, key.name), status.message.clone());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for mut object in list {
            object.types = Some(types(&kind.resource("v1")));
            if let Some(objects) = &mut self.objects {
                objects.push(object.clone());
            }
            let (found, entry) = read(kind, object);
            self.cache.named_secret_mut(&key).take(Change::Applied(found, entry));
        }
        Ok(())
    }
}

/// Objects in lists do not say what they are.
fn types(resource: &ApiResource) -> TypeMeta {
    TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() }
}
