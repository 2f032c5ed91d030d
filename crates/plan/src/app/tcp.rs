use portreeve_api::nebari_app::{RouteImport, RouteManagement, TcpClient, TcpEntry};
use portreeve_api::{ServiceReference, names};
use portreeve_names::{HostPattern, SniHostname, SniPattern};

use crate::condition::{Finding, Reason};

/// One entry of `routing.tcp`.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    /// Where operator-made routes lead; absent: the app attaches its own.
    pub(crate) service: Option<&'a ServiceReference>,
    pub(crate) names: Result<Names, Finding>,
    /// Whether IngressRouteTCPs become routes of the entry.
    pub(crate) imports: bool,
    pub(crate) clients: &'a [TcpClient],
}

/// The server names of an entry.
pub(crate) enum Names {
    /// One listener for every name of the port.
    All,
    /// The same; the names of its routes are limited to the pattern.
    Pattern(SniPattern),
    /// One listener for each, without doubles, in the order of the spec.
    Hosts(Vec<HostPattern>),
}

impl<'a> Entry<'a> {
    pub(crate) fn from_resource(entry: &'a TcpEntry) -> Self {
        let imports = entry.route_import == RouteImport::TraefikIngressRouteTcp;
        let names = if imports && entry.service.is_some() {
            Err(Reason::RouteImportNeedsAppRoutes
                .because("routeImport makes the routes of the entry: drop service, or make an entry of its own for it"))
        } else {
            Names::parse(&entry.sni_hostnames).and_then(|names| fit_routes(names, entry.service.is_some()))
        };
        Self {
            name: &entry.name,
            port: entry.listener.port,
            service: entry.service.as_ref(),
            names,
            imports,
            clients: &entry.clients,
        }
    }

    pub(crate) fn management(&self) -> RouteManagement {
        if self.service.is_some() { RouteManagement::Operator } else { RouteManagement::App }
    }

    /// Whether routes of the entry may have this name.
    pub(crate) fn covers(&self, hosts: &HostPattern) -> bool {
        match &self.names {
            Ok(Names::All) => true,
            Ok(Names::Pattern(pattern)) => pattern.covers(hosts),
            Ok(Names::Hosts(own)) => own.iter().any(|own| own.covers(hosts)),
            Err(_) => false,
        }
    }

    pub(crate) fn pattern(&self) -> Option<&SniPattern> {
        match &self.names {
            Ok(Names::Pattern(pattern)) => Some(pattern),
            _ => None,
        }
    }
}

impl Names {
    fn parse(texts: &[String]) -> Result<Self, Finding> {
        let mut hosts: Vec<HostPattern> = Vec::new();
        let mut patterns = Vec::new();
        for text in texts {
            match SniHostname::parse(text) {
                Ok(SniHostname::Host(host)) if hosts.contains(&host) => {}
                Ok(SniHostname::Host(host)) => hosts.push(host),
                Ok(SniHostname::Pattern(pattern)) => patterns.push(pattern),
                Err(error) => return Err(Reason::InvalidSni.because(format!("sniHostnames: {error}"))),
            }
        }
        match (patterns.pop(), hosts.is_empty()) {
            (None, true) => Ok(Self::All),
            (None, false) => Ok(Self::Hosts(hosts)),
            (Some(pattern), true) if patterns.is_empty() => Ok(Self::Pattern(pattern)),
            (Some(_), true) => {
                Err(Reason::InvalidSni.because("sniHostnames: an entry takes one pattern; use an entry for each"))
            }
            (Some(pattern), false) => Err(Reason::InvalidSni
                .because(format!("sniHostnames: pattern '{pattern}' stands beside names; use an entry for each"))),
        }
    }

    /// The host name of each listener, and the listener's name.
    pub(crate) fn listeners(&self, entry: &str) -> Vec<(HostPattern, String)> {
        match self {
            Self::All | Self::Pattern(_) => vec![(HostPattern::Any, names::nebari_app::tcp_listener(entry))],
            Self::Hosts(hosts) => {
                let name = |host: &HostPattern| names::nebari_app::tcp_listener_for(entry, &host.to_string());
                hosts.iter().map(|host| (host.clone(), name(host))).collect()
            }
        }
    }
}

/// Routes that Portreeve makes need names that a TLSRoute can say.
fn fit_routes(names: Names, has_service: bool) -> Result<Names, Finding> {
    match names {
        Names::All if has_service => Err(Reason::SniHostnamesRequired.because(
            "a TLSRoute needs at least one name: \
             write sniHostnames, or drop service and let the app attach its own routes",
        )),
        Names::Pattern(pattern) if has_service => Err(Reason::SniPatternNeedsAppRoutes.because(format!(
            "no TLSRoute can say '{pattern}': drop service and let the app attach its own routes, or write exact names"
        ))),
        names => Ok(names),
    }
}
