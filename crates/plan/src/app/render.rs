use std::collections::{BTreeMap, BTreeSet};

use portreeve_api::ServiceReference;
use portreeve_api::names::{self, labels, nebari_app as derived};
use portreeve_api::nebari_app::{PathType, RouteManagement, RouteMatch};
use portreeve_names::{HostPattern, SNI_PATTERNS_ANNOTATION};
use serde_json::{Value, json};

use super::clients::{Backends, Clients};
use super::import::{Importer, Imports};
use super::login::{SignIn, SignInMade, nobody_signs_in};
use super::lower::EntryListener;
use super::{App, AppCase, Auth, CertificateSource, ClientOwners, Entry, Section, Web};
use crate::acknowledgement::Parent;
use crate::body::{self, Backend, CERTIFICATE_V1, GATEWAY_API_V1, Metadata, PathMatch};
use crate::condition::{Finding, Reason};
use crate::docket::Judgement;
use crate::object::{Key, Kind};
use crate::settled::Alarm;
use crate::text::label_value;
use crate::view::View;
use crate::wanted::{Wanted, foreign};

/// What was made for an app, as far as its status needs to know.
#[derive(Default)]
pub(crate) struct Rendered {
    /// Objects that are wanted and cannot be had: their name is somebody else's, or the API server refuses them.
    pub(crate) blocked: Vec<(Key, Finding)>,
    /// The parents of each route that is wanted and by which it has to be served.
    pub(crate) parents: BTreeMap<Key, Vec<Parent>>,
    /// Parents that a route has beside them and that need not serve it yet.
    pub(crate) coming: BTreeMap<Key, Vec<Parent>>,
    /// One of each entry, unless nothing is made for the app.
    pub(super) entries: Vec<RenderedEntry>,
    /// Absent where the app asks for no sign-in, or where the platform has none.
    pub(crate) sign_in: Option<SignInMade>,
    /// Why the main route may not lead to the app; absent where it may, or where there is none.
    pub(super) closed: Option<Finding>,
    /// Why the main route does not lead to the app from the listener that is coming, while it does from the one that
    /// serves.
    pub(super) withheld: Option<Finding>,
    /// Whether the main route leads to the app although it is to be protected and is not yet.
    pub(super) stays_open: bool,
    /// When something that was put off is due.
    pub(super) alarm: Alarm,
}

/// What was made for an entry beside its listeners and its own route.
#[derive(Default)]
pub(super) struct RenderedEntry {
    /// Absent where the entry imports nothing, or has no listener.
    pub(super) imports: Option<Imports>,
    /// Absent where the entry names no clients, or has no listener.
    pub(super) clients: Option<Clients>,
}

/// Turns what an app was granted into objects.
pub(crate) fn render<'a>(
    view: &View<'a>,
    case: &AppCase<'a>,
    (judgement, owners): (&Judgement, &ClientOwners<'_>),
    wanted: &mut Wanted<'_, 'a>,
) -> Rendered {
    let mut rendering = Rendering {
        view,
        app: &case.app,
        judgement,
        wanted,
        rendered: Rendered::default(),
        has_listener_set: false,
        references: BTreeMap::new(),
    };
    if case.refusal.as_ref().is_some_and(|refusal| refusal.reason == Reason::NamespaceNotOptedIn) {
        rendering.keep_certificate();
        return rendering.rendered;
    }
    rendering.keep_policy();
    rendering.listener_set(case);
    rendering.certificate(case);
    rendering.sign_in(case, owners);
    rendering.entries(case);
    rendering.reference_grants();
    rendering.rendered
}

impl Rendered {
    /// Why an object cannot be had.
    pub(crate) fn blocked(&self, kind: Kind, name: &str) -> Option<Finding> {
        let mut blocked = self.blocked.iter().filter(|(key, _)| key.kind == kind && key.name == name);
        blocked.next().map(|(_, why)| why.clone())
    }
}

/// The parents of a route: by which it has to be served, and by which it need not be served yet.
type Parents = (Vec<Parent>, Vec<Parent>);

pub(super) struct Rendering<'r, 'v, 'a> {
    pub(super) view: &'r View<'a>,
    pub(super) app: &'r App<'a>,
    judgement: &'r Judgement,
    pub(super) wanted: &'r mut Wanted<'v, 'a>,
    pub(super) rendered: Rendered,
    has_listener_set: bool,
    /// Services of other namespaces that routes lead to, with the kinds of those routes.
    references: BTreeMap<(String, String), BTreeSet<Kind>>,
}

impl<'r, 'a> Rendering<'r, '_, 'a> {
    /// When a namespace opts out, its Certificates and Secrets stay.
    fn keep_certificate(&mut self) {
        let name = derived::certificate(self.app.name, self.app.namespace);
        self.wanted.kept.insert(Key::new(Kind::Certificate, self.app.namespace, name));
    }

    /// The policy that the former operator made for the app stays as long as it is asked for.
    fn keep_policy(&mut self) {
        if self.app.auth == Auth::Gateway && !self.app.is_leaving() {
            let name = derived::security_policy(self.app.name);
            self.wanted.kept.insert(Key::new(Kind::SecurityPolicy, self.app.namespace, name));
        }
    }

    fn listener_set(&mut self, case: &AppCase<'_>) {
        let listeners: Vec<Value> = self.https_listener(case).into_iter().chain(self.tcp_listeners(case)).collect();
        if listeners.is_empty() || !self.view.world.served.listener_sets {
            return;
        }
        let key = Key::new(Kind::ListenerSet, self.app.namespace, derived::listener_set(self.app.name));
        let metadata = self.metadata(labels::of_app_listeners(&label_value(self.app.name)), self.sni_patterns(case));
        let body = body::object(&key, GATEWAY_API_V1, metadata, body::listener_set(&self.app.gateway, listeners));
        self.has_listener_set = self.add(key, body);
    }

    fn https_listener(&self, case: &AppCase<'_>) -> Option<Value> {
        let (web, web_case) = (self.app.web.as_ref()?, case.web.as_ref()?);
        let name = match &web_case.section {
            Section::Own(name) => name,
            Section::Legacy(migration) if migration.has_own_listener() => &migration.entry.listener.name,
            Section::Legacy(_) | Section::Borrowed(_) => return None,
        };
        let hosts = HostPattern::Exact(web.hostname.as_ref().ok()?.clone());
        self.granted(web_case.claim)?;
        let secret = self.certificate_secret(web)?;
        let routes = body::routes_of_same_namespace(Kind::HttpRoute);
        Some(body::https_listener(name, &hosts, web_case.port, &secret, routes))
    }

    fn certificate_secret(&self, web: &Web<'_>) -> Option<String> {
        match web.certificate {
            CertificateSource::Secret(name) => Some(name.to_owned()),
            CertificateSource::Issuer(_) => Some(derived::certificate_secret(self.app.name, self.app.namespace)),
            CertificateSource::Disabled | CertificateSource::Shared => None,
        }
    }

    fn tcp_listeners(&self, case: &AppCase<'_>) -> Vec<Value> {
        let entries = self.app.entries.iter().zip(&case.entries);
        let listeners = entries.flat_map(|(entry, entry_case)| {
            let granted = self.granted_listeners(&entry_case.listeners);
            granted.map(|listener| body::passthrough_listener(&listener.name, &listener.hosts, entry.port))
        });
        listeners.collect()
    }

    fn sni_patterns(&self, case: &AppCase<'_>) -> BTreeMap<String, String> {
        let entries = self.app.entries.iter().zip(&case.entries);
        let patterns: BTreeMap<&str, String> = entries
            .flat_map(|(entry, entry_case)| {
                let granted = self.granted_listeners(&entry_case.listeners);
                granted.filter_map(|listener| Some((listener.name.as_str(), entry.pattern()?.to_string())))
            })
            .collect();
        if patterns.is_empty() {
            BTreeMap::new()
        } else {
            annotation(SNI_PATTERNS_ANNOTATION, json!(patterns).to_string())
        }
    }

    fn certificate(&mut self, case: &AppCase<'_>) {
        let Some((web, web_case)) = self.app.web.as_ref().zip(case.web.as_ref()) else { return };
        let (CertificateSource::Issuer(issuer), Ok(hostname)) = (web.certificate, &web.hostname) else { return };
        let stays = web_case.section.migration().is_some_and(|migration| !migration.has_own_certificate());
        if self.granted(web_case.claim).is_none() || !self.view.world.served.certificates || stays {
            return;
        }
        let (app, namespace) = (self.app.name, self.app.namespace);
        let key = Key::new(Kind::Certificate, namespace, derived::certificate(app, namespace));
        let metadata = self.metadata(labels::of_app_elsewhere(&label_value(app), namespace), BTreeMap::new());
        let spec = body::certificate(&derived::certificate_secret(app, namespace), hostname.as_str(), issuer);
        self.add(key.clone(), body::object(&key, CERTIFICATE_V1, metadata, spec));
    }

    /// What the app is served by. `sign_in` comes with the generation of its policy; absent where nobody can sign in.
    pub(super) fn http_routes(&mut self, case: &AppCase<'a>, sign_in: Option<(&SignIn<'a>, Option<i64>)>) {
        let Some((web, web_case)) = case.app.web.as_ref().zip(case.web.as_ref()) else { return };
        let Ok(hostname) = &web.hostname else { return };
        let served = self.view.world.served.http_routes;
        if self.granted(web_case.claim).is_none() || web.management == RouteManagement::App || !served {
            return;
        }
        let Some((serving, coming)) = self.parents(&web_case.section) else { return };
        let closed = self.closed(sign_in, &serving);
        let stays_open = || sign_in.is_some_and(|(sign_in, _)| sign_in.stays_open(self.view, &case.app));
        self.rendered.stays_open = closed.is_some() && stays_open();
        if closed.is_none() {
            self.rendered.withheld = self.closed(sign_in, &coming);
        }
        let parents = if self.rendered.withheld.is_some() {
            self.waiting_route(&coming, hostname.as_str());
            (serving, Vec::new())
        } else {
            (serving, coming)
        };
        let leads = closed.is_none() || self.rendered.stays_open;
        let main = self.http_route(web, &parents, hostname.as_str(), (false, leads));
        let is_public = self.app.auth != Auth::Disabled && !web.routing.public_routes.is_empty();
        if main && is_public && closed.is_none() {
            self.http_route(web, &parents, hostname.as_str(), (true, true));
        }
        self.rendered.closed = closed;
    }

    /// Why the main route may not lead to the app from these parents.
    fn closed(&mut self, sign_in: Option<(&SignIn<'a>, Option<i64>)>, parents: &[Parent]) -> Option<Finding> {
        match sign_in {
            _ if self.app.auth != Auth::Gateway => None,
            Some((sign_in, policy)) => sign_in.closed(self.view, self.app, policy, parents, &mut self.rendered.alarm),
            None => Some(nobody_signs_in(self.view)),
        }
    }

    /// Whether the app has a listener that is coming beside the one that serves.
    pub(super) fn moves(&self, case: &AppCase<'a>) -> bool {
        let parents = case.web.as_ref().and_then(|web| self.parents(&web.section));
        parents.is_some_and(|(_, coming)| !coming.is_empty())
    }

    /// At a listener that is coming a policy is accepted only for a route that is there. This one leads nowhere; where
    /// the main route comes beside it, that one is the older and serves.
    fn waiting_route(&mut self, coming: &[Parent], hostname: &str) {
        let (app, namespace) = (self.app.name, self.app.namespace);
        let key = Key::new(Kind::HttpRoute, namespace, derived::waiting_http_route(app));
        let spec = body::http_route(coming, hostname, &[("PathPrefix", "/")], None, namespace);
        let metadata = self.metadata(labels::of_app(&label_value(app)), BTreeMap::new());
        self.add(key.clone(), body::object(&key, GATEWAY_API_V1, metadata, spec));
        if let Some(blocked) = self.rendered.blocked(key.kind, &key.name) {
            self.rendered.withheld = Some(blocked);
        }
    }

    /// A route that does not lead to the app leads nowhere: the gateway takes it in, and answers every request with an error.
    fn http_route(
        &mut self,
        web: &Web<'_>,
        (serving, coming): &Parents,
        hostname: &str,
        (public, leads): (bool, bool),
    ) -> bool {
        let (app, namespace) = (self.app.name, self.app.namespace);
        let routing = web.routing;
        let mut labels = labels::of_app(&label_value(app));
        let (name, annotations, paths) = if public {
            labels.insert(labels::ROUTE_TYPE.to_owned(), labels::PUBLIC_ROUTE.to_owned());
            let paths = paths(&routing.public_routes, PathType::Exact);
            (derived::public_http_route(app), BTreeMap::new(), paths)
        } else {
            let paths = paths(&routing.routes, PathType::PathPrefix);
            (derived::http_route(app), routing.annotations.clone(), paths)
        };
        let tls = if web.is_tls() { labels::TRUE } else { labels::FALSE };
        let annotations = annotations.into_iter().chain(annotation(labels::TLS_ENABLED, tls.to_owned())).collect();
        let key = Key::new(Kind::HttpRoute, namespace, name);
        let parents = [&serving[..], &coming[..]].concat();
        let backend = self.backend(&self.app.source.spec.service);
        let spec = body::http_route(&parents, hostname, &paths, Some(&backend).filter(|_| leads), namespace);
        self.refer(Kind::HttpRoute, &backend);
        let body = body::object(&key, GATEWAY_API_V1, self.metadata(labels, annotations), spec);
        self.expect(key.clone(), serving.clone());
        self.rendered.coming.insert(key.clone(), coming.clone());
        self.add(key, body)
    }

    fn parents(&self, section: &Section<'_>) -> Option<Parents> {
        let serving = match section {
            Section::Own(name) => self.own_parent(name)?,
            Section::Borrowed(name) => {
                self.view.may_borrow(&self.app.gateway, name).then(|| self.gateway_parent(name))?
            }
            Section::Legacy(migration) => self.gateway_parent(&migration.entry.listener.name),
        };
        let coming = section.migration().filter(|migration| migration.has_own_listener()).map(|migration| {
            let own = self.own_parent(&migration.entry.listener.name);
            let shared = self.app.web.as_ref().is_some_and(|web| web.certificate == CertificateSource::Shared);
            if shared { Some(self.gateway_parent(names::HTTPS_LISTENER)) } else { own }
        });
        Some((vec![serving], coming.flatten().into_iter().collect()))
    }

    fn gateway_parent(&self, section: &str) -> Parent {
        Parent {
            kind: Kind::Gateway.as_str(),
            namespace: self.app.gateway.namespace.to_string(),
            name: self.app.gateway.name.to_string(),
            section: Some(section.to_owned()),
        }
    }

    pub(super) fn own_parent(&self, section: &str) -> Option<Parent> {
        self.has_listener_set.then(|| Parent {
            kind: Kind::ListenerSet.as_str(),
            namespace: self.app.namespace.to_owned(),
            name: derived::listener_set(self.app.name),
            section: Some(section.to_owned()),
        })
    }

    fn entries(&mut self, case: &'r AppCase<'a>) {
        let mut backends = Backends::new();
        for (entry, entry_case) in case.app.entries.iter().zip(&case.entries) {
            self.tls_route(entry, &entry_case.listeners);
            let granted: Vec<&EntryListener> = self.granted_listeners(&entry_case.listeners).collect();
            let mut made = RenderedEntry::default();
            if self.has_listener_set && !granted.is_empty() {
                made.imports = entry.imports.then(|| self.imports(entry, &granted));
                made.clients = (!entry.clients.is_empty())
                    .then(|| self.clients(entry, &granted, made.imports.as_ref(), &mut backends));
            }
            self.rendered.entries.push(made);
        }
        self.backend_policies(backends);
    }

    fn imports(&mut self, entry: &'r Entry<'a>, granted: &[&EntryListener]) -> Imports {
        let mut imports = Imports::default();
        let importer = Importer { view: self.view, app: self.app, entry, granted, judgement: self.judgement };
        let sources = self.view.ingress_routes_in(self.app.namespace).iter();
        for source in sources.filter(|source| source.metadata.deletion_timestamp.is_none()) {
            for rule in &source.spec.routes {
                match importer.read(source, rule) {
                    Ok(Some(route)) => self.imported_route(entry, source, rule, &route, &mut imports),
                    Ok(None) => {}
                    Err(message) => imports.refuse(source, rule, message),
                }
            }
        }
        imports
    }

    fn tls_route(&mut self, entry: &Entry<'a>, listeners: &[EntryListener]) {
        let (Some(service), Some(version)) = (entry.service, self.view.world.served.tls_routes) else { return };
        let granted: Vec<&EntryListener> = self.granted_listeners(listeners).collect();
        let parents: Vec<Parent> = granted.iter().filter_map(|listener| self.own_parent(&listener.name)).collect();
        if parents.is_empty() {
            return;
        }
        let hostnames: Vec<String> = granted.iter().filter_map(|listener| listener.hosts.to_field()).collect();
        let key = Key::new(Kind::TlsRoute, self.app.namespace, derived::tls_route(self.app.name, entry.name));
        let labels = labels::of_tcp_route(&label_value(self.app.name));
        let backend = self.backend(service);
        self.refer(Kind::TlsRoute, &backend);
        let spec = body::tls_route(&parents, &hostnames, &[backend], self.app.namespace);
        let body = body::object(&key, version.api_version(), self.metadata(labels, BTreeMap::new()), spec);
        self.expect(key.clone(), parents);
        self.add(key, body);
    }

    fn backend(&self, service: &'r ServiceReference) -> Backend<'r> {
        let namespace = service.namespace.as_deref().unwrap_or(self.app.namespace);
        Backend { namespace, name: &service.name, port: service.port, weight: 1 }
    }

    /// Notes which parents have to accept a route.
    pub(super) fn expect(&mut self, route: Key, parents: Vec<Parent>) {
        self.rendered.parents.insert(route, parents);
    }

    /// Notes that a route leads to a Service, for the grant that it may need.
    pub(super) fn refer(&mut self, kind: Kind, backend: &Backend<'_>) {
        if backend.namespace != self.app.namespace {
            let service = (backend.namespace.to_owned(), backend.name.to_owned());
            self.references.entry(service).or_default().insert(kind);
        }
    }

    /// A grant for each Service of another namespace that consents.
    fn reference_grants(&mut self) {
        let (app, from) = (self.app.name, self.app.namespace);
        for ((namespace, service), kinds) in std::mem::take(&mut self.references) {
            if self.view.consents(from, &namespace, &service) {
                let key = Key::new(Kind::ReferenceGrant, &namespace, derived::reference_grant(from, app, &service));
                self.add_elsewhere(key, GATEWAY_API_V1, body::reference_grant(kinds, from, &service));
            }
        }
    }

    /// Wants an object that may be in another namespace than the app, where it can have no owner reference.
    pub(super) fn add_elsewhere(&mut self, key: Key, api_version: &str, spec: Value) -> bool {
        let labels = labels::of_app_elsewhere(&label_value(self.app.name), self.app.namespace);
        let body = body::object(&key, api_version, Metadata { labels, ..Metadata::default() }, spec);
        self.add(key, body)
    }

    pub(super) fn granted(&self, claim: Option<usize>) -> Option<usize> {
        claim.filter(|claim| self.judgement.is_granted(*claim))
    }

    fn granted_listeners<'l>(&self, listeners: &'l [EntryListener]) -> impl Iterator<Item = &'l EntryListener> {
        listeners.iter().filter(|listener| self.judgement.is_granted(listener.claim))
    }

    pub(super) fn metadata(
        &self,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
    ) -> Metadata<'_> {
        Metadata { labels, annotations, owner: Some(self.app.identity()), ..Metadata::default() }
    }

    pub(super) fn add(&mut self, key: Key, body: Value) -> bool {
        let added = self.wanted.add(self.app.identity(), &key, body);
        let foreign = || foreign(&key, "app");
        let blocked = if added { self.wanted.refusal(&key) } else { Some(foreign()) };
        self.rendered.blocked.extend(blocked.map(|why| (key, why)));
        added
    }
}

/// Without any path the app is served at all of them.
fn paths(routes: &[RouteMatch], default: PathType) -> Vec<PathMatch<'_>> {
    let type_of = |route: &RouteMatch| match route.path_type.unwrap_or(default) {
        PathType::Exact => "Exact",
        PathType::PathPrefix => "PathPrefix",
    };
    if routes.is_empty() {
        return vec![("PathPrefix", "/")];
    }
    routes.iter().map(|route| (type_of(route), route.path_prefix.as_str())).collect()
}

fn annotation(key: &str, value: String) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value)])
}
