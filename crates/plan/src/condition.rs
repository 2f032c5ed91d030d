//! Reasons, and the conditions and events that they become.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use portreeve_api::conditions::{events, reasons};

use crate::output::{Event, ObjectRef};

/// Why something is as it is. One value feeds the condition and the event.
///
/// `Ord` is precedence: of several that apply, the least is reported. First what is not so, then what is not known yet,
/// then what is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    // === Not so: the spec or the platform's rules ===
    NamespaceNotOptedIn,
    InvalidSpec,
    NamespaceFailed,
    QuotaFailed,
    BuildFailed,
    AuthNeedsOperatorRoutes,
    InvalidProvider,
    ProvisioningNotSupported,
    GroupsNotEnforceable,
    InvalidSni,
    SniHostnamesRequired,
    SniPatternNeedsAppRoutes,
    RouteImportNeedsAppRoutes,
    PortReserved,
    HostnameNotAllowed,
    HostnameConflict,
    PortConflict,
    ClientConflict,
    TooManyListeners,
    ResourceNameTooLong,
    // === Not so: what is there or missing ===
    ForeignObject,
    WriteRefused,
    GatewayNotFound,
    GatewayNotIsolated,
    ListenerSetUnsupported,
    TlsRouteUnsupported,
    HttpRouteUnsupported,
    ServiceNotFound,
    RefNotPermitted,
    PolicyMissing,
    ClientNamespaceNotOptedIn,
    ValidationFailed,
    UserProvidedSecretNotFound,
    UserProvidedSecretInvalidType,
    CertificateFailed,
    // === Not so: what the gateway or the issuer says ===
    SecurityPolicyFailed,
    ListenerSetNotAllowed,
    ListenerSetIgnored,
    ListenersOverwritten,
    ListenerRejected,
    CertificateNotReady,
    ListenerConflicted,
    GatewayListenerConflict,
    PortUnavailable,
    ListenerNotProgrammed,
    RouteNotAccepted,
    RouteRefsNotResolved,
    RouteHostnameOutsidePattern,
    RouteNotImported,
    HostnameContested,
    DialFailed,
    SanMissing,
    Terminated,
    NoRoute,
    ConnectFailed,
    DnsUnsupported,
    MoveBlocked,
    // === Not so: sums ===
    NetworkingFailed,
    AppsNetworkingFailed,
    ProvisioningFailed,
    NameDeprecated,
    ChartTooOld,
    FormerNamespaceLeft,
    Provisioning,
    Failed,
    // === Not so, by choice ===
    TlsDisabled,
    ClusterIssuerNotConfigured,
    RoutingNotConfigured,
    IsolationDisabled,
    AuthDisabled,
    // === Not known yet ===
    Pending,
    Moved,
    Reconciling,
    // === Well ===
    MigrationBlocked,
    Migrating,
    LegacyListener,
    TlsConfigured,
    UserProvidedSecretReady,
    HttpRouteReady,
    AuthConfigured,
    ListenersProgrammed,
    RoutesImported,
    ClientsAllowed,
    NotNeeded,
    RouteAccepted,
    ApiServerReached,
    Isolated,
    RecordPublished,
    MovePreparing,
    MoveAwaitingDns,
    MoveAwaitingTtl,
    MoveFollowing,
    ReconcileSuccess,
    Provisioned,
}

/// A reason and what to tell people. The message has no counts, ages or times, so that it changes only with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// The conditions of one object, put together before any is written.
pub(crate) struct Conditions<'a> {
    previous: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    made: Vec<Condition>,
}

impl Reason {
    /// The status of a condition with this reason.
    pub(crate) fn status(self) -> &'static str {
        match self {
            reason if reason < Self::Pending => "False",
            reason if reason.is_unknown() => "Unknown",
            _ => "True",
        }
    }

    pub(crate) fn is_false(self) -> bool {
        self < Self::Pending
    }

    /// Whether it will show without anybody's doing.
    pub(crate) fn is_unknown(self) -> bool {
        matches!(self, Self::Pending | Self::Moved | Self::Reconciling)
    }

    /// Whether it is not so because somebody chose it; such a reason does no harm to Ready.
    pub(crate) fn is_choice(self) -> bool {
        (Self::TlsDisabled..=Self::AuthDisabled).contains(&self)
    }

    /// A finding with this reason.
    pub(crate) fn because(self, message: impl Into<String>) -> Finding {
        Finding { reason: self, message: message.into() }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NamespaceNotOptedIn => reasons::NAMESPACE_NOT_OPTED_IN,
            Self::InvalidSpec => reasons::INVALID_SPEC,
            Self::NamespaceFailed => reasons::NAMESPACE_FAILED,
            Self::QuotaFailed => reasons::QUOTA_FAILED,
            Self::BuildFailed => reasons::BUILD_FAILED,
            Self::AuthNeedsOperatorRoutes => reasons::AUTH_NEEDS_OPERATOR_ROUTES,
            Self::InvalidProvider => reasons::INVALID_PROVIDER,
            Self::ProvisioningNotSupported => reasons::PROVISIONING_NOT_SUPPORTED,
            Self::GroupsNotEnforceable => reasons::GROUPS_NOT_ENFORCEABLE,
            Self::ClientConflict => reasons::CLIENT_CONFLICT,
            Self::SecurityPolicyFailed => reasons::SECURITY_POLICY_FAILED,
            Self::InvalidSni => reasons::INVALID_SNI,
            Self::SniHostnamesRequired => reasons::SNI_HOSTNAMES_REQUIRED,
            Self::SniPatternNeedsAppRoutes => reasons::SNI_PATTERN_NEEDS_APP_ROUTES,
            Self::RouteImportNeedsAppRoutes => reasons::ROUTE_IMPORT_NEEDS_APP_ROUTES,
            Self::PortReserved => reasons::PORT_RESERVED,
            Self::HostnameNotAllowed => reasons::HOSTNAME_NOT_ALLOWED,
            Self::HostnameConflict => reasons::HOSTNAME_CONFLICT,
            Self::PortConflict => reasons::PORT_CONFLICT,
            Self::TooManyListeners => reasons::TOO_MANY_LISTENERS,
            Self::ResourceNameTooLong => reasons::RESOURCE_NAME_TOO_LONG,
            Self::ForeignObject => reasons::FOREIGN_OBJECT,
            Self::WriteRefused => reasons::WRITE_REFUSED,
            Self::GatewayNotFound => reasons::GATEWAY_NOT_FOUND,
            Self::GatewayNotIsolated => reasons::GATEWAY_NOT_ISOLATED,
            Self::ListenerSetUnsupported => reasons::LISTENER_SET_UNSUPPORTED,
            Self::TlsRouteUnsupported => reasons::TLS_ROUTE_UNSUPPORTED,
            Self::HttpRouteUnsupported => reasons::HTTP_ROUTE_UNSUPPORTED,
            Self::ServiceNotFound => reasons::SERVICE_NOT_FOUND,
            Self::RefNotPermitted => reasons::REF_NOT_PERMITTED,
            Self::PolicyMissing => reasons::POLICY_MISSING,
            Self::ClientNamespaceNotOptedIn => reasons::CLIENT_NAMESPACE_NOT_OPTED_IN,
            Self::ValidationFailed => reasons::VALIDATION_FAILED,
            Self::UserProvidedSecretNotFound => reasons::USER_PROVIDED_SECRET_NOT_FOUND,
            Self::UserProvidedSecretInvalidType => reasons::USER_PROVIDED_SECRET_INVALID_TYPE,
            Self::CertificateFailed => reasons::CERTIFICATE_FAILED,
            Self::ListenerSetNotAllowed => reasons::LISTENER_SET_NOT_ALLOWED,
            Self::ListenerSetIgnored => reasons::LISTENER_SET_IGNORED,
            Self::CertificateNotReady => reasons::CERTIFICATE_NOT_READY,
            Self::ListenerConflicted => reasons::LISTENER_CONFLICTED,
            Self::GatewayListenerConflict => reasons::GATEWAY_LISTENER_CONFLICT,
            Self::PortUnavailable => reasons::PORT_UNAVAILABLE,
            Self::ListenersOverwritten => reasons::LISTENERS_OVERWRITTEN,
            Self::ListenerRejected => reasons::LISTENER_REJECTED,
            Self::ListenerNotProgrammed => reasons::LISTENER_NOT_PROGRAMMED,
            Self::RouteNotAccepted => reasons::ROUTE_NOT_ACCEPTED,
            Self::RouteRefsNotResolved => reasons::ROUTE_REFS_NOT_RESOLVED,
            Self::RouteHostnameOutsidePattern => reasons::ROUTE_HOSTNAME_OUTSIDE_PATTERN,
            Self::RouteNotImported => reasons::ROUTE_NOT_IMPORTED,
            Self::HostnameContested => reasons::HOSTNAME_CONTESTED,
            Self::DialFailed => reasons::DIAL_FAILED,
            Self::SanMissing => reasons::SAN_MISSING,
            Self::Terminated => reasons::TERMINATED,
            Self::NoRoute => reasons::NO_ROUTE,
            Self::ConnectFailed => reasons::CONNECT_FAILED,
            Self::DnsUnsupported => reasons::DNS_UNSUPPORTED,
            Self::MoveBlocked => reasons::MOVE_BLOCKED,
            Self::NetworkingFailed => reasons::NETWORKING_FAILED,
            Self::AppsNetworkingFailed => reasons::APPS_NETWORKING_FAILED,
            Self::ProvisioningFailed => reasons::PROVISIONING_FAILED,
            Self::NameDeprecated => reasons::NAME_DEPRECATED,
            Self::ChartTooOld => reasons::CHART_TOO_OLD,
            Self::FormerNamespaceLeft => reasons::FORMER_NAMESPACE_LEFT,
            Self::Provisioning => reasons::PROVISIONING,
            Self::Failed => reasons::FAILED,
            Self::TlsDisabled => reasons::TLS_DISABLED,
            Self::ClusterIssuerNotConfigured => reasons::CLUSTER_ISSUER_NOT_CONFIGURED,
            Self::RoutingNotConfigured => reasons::ROUTING_NOT_CONFIGURED,
            Self::IsolationDisabled => reasons::ISOLATION_DISABLED,
            Self::AuthDisabled => reasons::AUTH_DISABLED,
            Self::Pending => reasons::PENDING,
            Self::Moved => reasons::MOVED,
            Self::Reconciling => reasons::RECONCILING,
            Self::MigrationBlocked => reasons::MIGRATION_BLOCKED,
            Self::Migrating => reasons::MIGRATING,
            Self::LegacyListener => reasons::LEGACY_LISTENER,
            Self::TlsConfigured => reasons::TLS_CONFIGURED,
            Self::UserProvidedSecretReady => reasons::USER_PROVIDED_SECRET_READY,
            Self::HttpRouteReady => reasons::HTTP_ROUTE_READY,
            Self::AuthConfigured => reasons::AUTH_CONFIGURED,
            Self::ListenersProgrammed => reasons::LISTENERS_PROGRAMMED,
            Self::RoutesImported => reasons::ROUTES_IMPORTED,
            Self::ClientsAllowed => reasons::CLIENTS_ALLOWED,
            Self::NotNeeded => reasons::NOT_NEEDED,
            Self::RouteAccepted => reasons::ROUTE_ACCEPTED,
            Self::ApiServerReached => reasons::API_SERVER_REACHED,
            Self::Isolated => reasons::ISOLATED,
            Self::RecordPublished => reasons::RECORD_PUBLISHED,
            Self::MovePreparing => reasons::MOVE_PREPARING,
            Self::MoveAwaitingDns => reasons::MOVE_AWAITING_DNS,
            Self::MoveAwaitingTtl => reasons::MOVE_AWAITING_TTL,
            Self::MoveFollowing => reasons::MOVE_FOLLOWING,
            Self::ReconcileSuccess => reasons::RECONCILE_SUCCESS,
            Self::Provisioned => reasons::PROVISIONED,
        }
    }
}

/// Of several findings the one to report: the least reason, and of equal ones the first.
pub(crate) fn foremost(findings: impl IntoIterator<Item = Finding>) -> Option<Finding> {
    findings.into_iter().min_by_key(|finding| finding.reason)
}

impl<'a> Conditions<'a> {
    /// `previous` are those that the object has, of the generation that is about to be described.
    pub(crate) fn new(previous: &'a [Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self { previous, generation, now, made: Vec::new() }
    }

    /// Adds a condition; its `lastTransitionTime` moves only when its status does.
    pub(crate) fn add(&mut self, type_: &str, finding: Finding) {
        let status = finding.reason.status();
        let since = self.previous(type_).filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
        self.made.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: finding.reason.as_str().to_owned(),
            message: shortened(finding.message),
            observed_generation: self.generation,
            last_transition_time: since.unwrap_or(Time(self.now)),
        });
    }

    /// An event for each reason that is new to its condition, where there is something to tell.
    pub(crate) fn events(&self, about: &ObjectRef) -> Vec<Event> {
        let changed = |new: &&Condition| self.previous(&new.type_).is_none_or(|old| old.reason != new.reason);
        let telling = |new: &&Condition| new.status != "Unknown" && !QUIET.contains(&new.reason.as_str());
        let mut events: Vec<Event> = Vec::new();
        for event in self.made.iter().filter(telling).filter(changed).map(|new| event(about, new)) {
            if !events.contains(&event) {
                events.push(event);
            }
        }
        events
    }

    pub(crate) fn finish(self) -> Vec<Condition> {
        self.made
    }

    fn previous(&self, type_: &str) -> Option<&'a Condition> {
        self.previous.iter().find(|condition| condition.type_ == type_)
    }
}

/// How many bytes of a message are told. Far more would make the API server refuse the whole status (32,768 at most), and
/// what somebody wrote into a spec may be that long.
const MAX_MESSAGE: usize = 2048;

pub(crate) fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}

/// Reasons that make no event: choices, what is still to come, what is as it should be from the start, and the sum of what
/// other conditions say.
const QUIET: [&str; 10] = [
    reasons::TLS_DISABLED,
    reasons::CLUSTER_ISSUER_NOT_CONFIGURED,
    reasons::ROUTING_NOT_CONFIGURED,
    reasons::AUTH_DISABLED,
    reasons::ISOLATION_DISABLED,
    reasons::ISOLATED,
    reasons::RECORD_PUBLISHED,
    reasons::PROVISIONING,
    reasons::CERTIFICATE_NOT_READY,
    reasons::FAILED,
];

/// Events that the contract calls otherwise than their conditions.
const EVENT_NAMES: [(&str, &str); 3] = [
    (reasons::USER_PROVIDED_SECRET_READY, events::USER_PROVIDED_SECRET_IN_USE),
    (reasons::USER_PROVIDED_SECRET_INVALID_TYPE, events::USER_PROVIDED_SECRET_INVALID),
    (reasons::AUTH_CONFIGURED, events::CONFIGURED),
];

fn event(about: &ObjectRef, condition: &Condition) -> Event {
    let name = EVENT_NAMES.iter().find(|(reason, _)| *reason == condition.reason);
    Event {
        about: about.clone(),
        warning: condition.status == "False" || condition.reason == reasons::MIGRATION_BLOCKED,
        reason: name.map_or(condition.reason.clone(), |(_, name)| (*name).to_owned()),
        message: condition.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// traps: 38
    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let make = |previous: &[Condition], at: i64, reason: Reason| {
            let mut conditions = Conditions::new(previous, Some(1), second(at));
            conditions.add("Ready", reason.because("…"));
            conditions.finish()
        };
        let first = make(&[], 1, Reason::ServiceNotFound);
        let other_reason = make(&first, 2, Reason::ForeignObject);
        assert_eq!(other_reason[0].last_transition_time, Time(second(1)));
        let other_status = make(&other_reason, 3, Reason::ReconcileSuccess);
        assert_eq!(other_status[0].last_transition_time, Time(second(3)));
    }

    /// The order in which the issue lists the reasons of `TCPRoutingReady`.
    #[test]
    fn the_reasons_of_entries_are_in_their_order() {
        let order = [
            Reason::InvalidSni,
            Reason::SniHostnamesRequired,
            Reason::SniPatternNeedsAppRoutes,
            Reason::PortReserved,
            Reason::HostnameNotAllowed,
            Reason::HostnameConflict,
            Reason::PortConflict,
            Reason::TooManyListeners,
            Reason::ResourceNameTooLong,
            Reason::ForeignObject,
            Reason::GatewayNotFound,
            Reason::ListenerSetUnsupported,
            Reason::TlsRouteUnsupported,
            Reason::ServiceNotFound,
            Reason::RefNotPermitted,
            Reason::ListenerSetNotAllowed,
            Reason::ListenerSetIgnored,
            Reason::ListenerConflicted,
            Reason::PortUnavailable,
            Reason::ListenerNotProgrammed,
            Reason::RouteNotAccepted,
            Reason::RouteRefsNotResolved,
            Reason::RouteHostnameOutsidePattern,
            Reason::DialFailed,
            Reason::Pending,
        ];
        assert!(order.is_sorted());
    }

    #[test]
    fn the_least_reason_is_reported() {
        let findings = [Reason::Pending, Reason::DialFailed, Reason::PortReserved].map(|reason| reason.because(""));
        assert_eq!(foremost(findings).map(|finding| finding.reason), Some(Reason::PortReserved));
    }
}
