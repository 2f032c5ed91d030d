use portreeve_names::HostPattern;
use portreeve_table::{HttpRequestHead, HttpRoute, HttpRoutes, RouteId, TlsService};

use super::listeners::{Found, Service};
use super::{Hop, Walk};
use crate::index::name_of;
use crate::listener::{Listener, RouteKind};
use crate::owners::Owner;
use crate::routes::{Parent, Refusal, Route, Rule, few};

/// A route and its rule; absent where the gateway answers itself.
type Taken<'w> = Option<(&'w Route<'w>, &'w Rule<'w>)>;

impl<'w> Walk<'w> {
    /// The route hop, and the rule if the way goes on to its backends.
    pub(super) fn route(&self, gateway: &Owner<'_>, found: &Found<'w>) -> Result<(Hop, Taken<'w>), Hop> {
        match found.service {
            Service::Http(listener) => self.http_route(gateway, found.listener, &listener.routes),
            Service::Tls(listener) => match &listener.service {
                TlsService::TerminateHttp { routes, .. } => self.http_route(gateway, found.listener, routes),
                TlsService::Passthrough(routes) | TlsService::TerminateTcp { routes, .. } => {
                    let route = routes.find(self.question.name.as_ref()).and_then(|found| self.by_route_id(&found.id));
                    let taken = route.and_then(|route| Some((route, route.rules.first()?)));
                    let (route, rule) = taken.ok_or_else(|| self.no_route(gateway, found.listener))?;
                    let finding = format!("takes {}", self.asked());
                    Ok((Hop::good("Route", route.id.to_string(), finding), Some((route, rule))))
                }
            },
        }
    }

    fn http_route(
        &self,
        gateway: &Owner<'_>,
        listener: &'w Listener<'w>,
        routes: &HttpRoutes,
    ) -> Result<(Hop, Taken<'w>), Hop> {
        let entry = self.matching(routes)?.ok_or_else(|| self.no_route(gateway, listener))?;
        let route = self.by_route_id(&entry.id).ok_or_else(|| self.no_route(gateway, listener))?;
        let rule = route.rules.iter().find(|rule| rule.http.matches.contains(&entry.matches));
        let subject = entry.id.to_string();
        if rule.is_none() && entry.login.is_some() {
            return Ok((
                Hop::good("Route", subject, "answers itself: visitors sign in and out there".to_owned()),
                None,
            ));
        }
        let rule = rule.ok_or_else(|| self.no_route(gateway, listener))?;
        if let Some(unsupported) = &rule.http.unsupported {
            let finding = format!("the rule that takes it is answered with 500: {unsupported}");
            return Err(Hop::bad("Route", subject, finding, "take that out of the rule"));
        }
        if let Some(redirect) = &rule.http.filters.redirect {
            let finding = format!("answers {} itself, with a redirect", redirect.status);
            return Ok((Hop::good("Route", subject, finding), None));
        }
        if rule.backends.iter().all(|backend| backend.weight == 0) {
            let finding = "the rule that takes it has no backend with a weight, so it is answered with 500";
            return Err(Hop::bad("Route", subject, finding, "add a backendRef to the rule"));
        }
        let finding = format!("takes {} {}", self.asked(), self.request_line());
        Ok((Hop::good("Route", subject, finding), Some((route, rule))))
    }

    /// What the data plane would find.
    fn matching<'r>(&self, routes: &'r HttpRoutes) -> Result<Option<&'r HttpRoute>, Hop> {
        let (method, path) = self.request();
        let method = method.parse().map_err(|_| {
            Hop::bad("Route", method.to_owned(), format!("'{method}' is not a method"), "ask with another method")
        })?;
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let head = HttpRequestHead { path, query, method: &method, headers: &http::HeaderMap::new() };
        Ok(routes.find(self.question.name.as_ref(), &head))
    }

    fn request(&self) -> (&str, &str) {
        self.question.request.as_ref().map_or(("GET", "/"), |request| (&request.method, &request.path))
    }

    fn request_line(&self) -> String {
        let (method, path) = self.request();
        format!("{method} {path}")
    }

    fn by_route_id(&self, id: &RouteId) -> Option<&'w Route<'w>> {
        self.decisions.routes.iter().find(|route| route.id == *id)
    }

    /// Why there is no route, from those that claim the name.
    fn no_route(&self, gateway: &Owner<'_>, listener: &Listener<'_>) -> Hop {
        let near = self.near(gateway, listener);
        let kind = listener.kinds.first().map_or("Route", |kind| kind.as_str());
        let what = match listener.kinds.first() {
            Some(RouteKind::Http) => format!("{} {}", self.asked(), self.request_line()),
            _ => self.asked(),
        };
        let Some((_, fix)) = near.first().cloned() else {
            let hosts = self.question.name.as_ref().map_or("(a name)", |name| name.as_str());
            let fix = format!("create a {kind} with hostname '{hosts}' and a parentRef to {}", listener.id);
            return Hop::bad("Route", kind, format!("no route of this listener takes {what}, and none claims it"), fix);
        };
        let reasons = few(near.into_iter().map(|(reason, _)| reason), "; ");
        Hop::bad("Route", kind, format!("no route of this listener takes {what}: {reasons}"), fix)
    }

    /// The routes that claim the name, why each does not take it here, and what to do; the nearest first.
    fn near(&self, gateway: &Owner<'_>, listener: &Listener<'_>) -> Vec<(String, String)> {
        let claiming = self.decisions.routes.iter().filter(|route| self.claims(route.hosts.as_deref().unwrap_or(&[])));
        let of_gateway =
            |parent: &&Parent<'_>| self.decisions.owners[parent.owner].gateway_name == gateway.gateway_name;
        let mut near: Vec<_> = claiming
            .flat_map(|route| route.parents.iter().filter(of_gateway).map(move |parent| (route, parent)))
            .map(|(route, parent)| self.near_miss(listener, route, parent))
            .collect();
        near.sort_by_key(|(rank, _, _)| *rank);
        let mut near: Vec<_> = near.into_iter().map(|(_, reason, fix)| (reason, fix)).collect();
        near.extend(self.strangers());
        near
    }

    fn claims(&self, hosts: &[HostPattern]) -> bool {
        let name = self.question.name.as_ref();
        hosts.is_empty() || hosts.iter().any(|hosts| name.is_some_and(|name| hosts.matches(name)))
    }

    /// How near, why not, what to do.
    fn near_miss(&self, listener: &Listener<'_>, route: &Route<'_>, parent: &Parent<'_>) -> (u8, String, String) {
        let id = &route.id;
        match &parent.attachments {
            Err(refusal) => {
                let reason = format!("{id} is not accepted ({}): {refusal}", refusal.reason());
                (1, reason, advice(refusal, route, listener))
            }
            Ok(attachments) => {
                let listeners = attachments.iter().map(|attachment| &self.decisions.listeners[attachment.listener]);
                let here = listeners.clone().any(|other| other.id == listener.id);
                if here {
                    let reason = format!("{id} has the name, but no rule of it takes {}", self.request_line());
                    return (0, reason, format!("add a match for {} to {id}", self.request_line()));
                }
                let others = few(listeners.map(|other| other.id.to_string()).collect::<Vec<_>>().into_iter(), ", ");
                let reason = format!("{id} is attached to {others}, and a listener's routes serve no other listener");
                (2, reason, format!("give {id} a parentRef to {}", listener.id))
            }
        }
    }

    /// Routes that claim the name and name no parent that is looked at.
    fn strangers(&self) -> Vec<(String, String)> {
        let http = self
            .objects
            .http_routes
            .iter()
            .map(|route| (RouteKind::Http, &route.metadata, route.spec.hostnames.as_deref().unwrap_or_default()));
        let tls = self
            .objects
            .tls_routes
            .iter()
            .map(|route| (RouteKind::Tls, &route.metadata, route.spec.hostnames.as_slice()));
        let is_known = |id: &RouteId| self.by_route_id(id).is_some();
        let strangers = http.chain(tls).filter_map(|(kind, metadata, hostnames)| {
            let (namespace, name) = name_of(metadata);
            let id = RouteId(format!("{}/{namespace}/{name}", kind.as_str()).into());
            let hosts: Vec<_> = hostnames.iter().filter_map(|name| HostPattern::parse(name).ok()).collect();
            (!hosts.is_empty() && self.claims(&hosts) && !is_known(&id)).then_some(id)
        });
        let mut ids: Vec<_> = strangers.collect();
        ids.sort_unstable();
        let miss = |id: RouteId| {
            (
                format!("{id} claims the name, but names no parent of this Gateway"),
                format!("correct the parentRefs of {id}"),
            )
        };
        ids.into_iter().map(miss).collect()
    }
}

fn advice(refusal: &Refusal, route: &Route<'_>, listener: &Listener<'_>) -> String {
    let (id, namespace) = (&route.id, name_of(route.metadata).0);
    match refusal {
        Refusal::ParentRefused(parent) => format!("let the Gateway admit {parent} (spec.allowedListeners)"),
        Refusal::NoMatchingParent { .. } => {
            format!("correct sectionName and port in the parentRef of {id}, such as to section '{}'", listener.name)
        }
        Refusal::Kind { .. } => format!("attach {id} to a listener that takes a {}", route.kind.as_str()),
        Refusal::Namespace { .. } => {
            format!("allow namespace '{namespace}' in allowedRoutes.namespaces of the listener, or move {id}")
        }
        Refusal::Hostname { .. } => {
            format!("give {id} a host name that belongs to the listener, or change the listener")
        }
        Refusal::UnreadableHostname(_) => format!("correct the hostnames of {id}"),
        Refusal::NoRuleLeft(_) => format!("take that out of the rules of {id}"),
        Refusal::Unprotectable(protection) => {
            format!("serve it with a gateway that applies {protection}, or let the application sign visitors in itself")
        }
    }
}
