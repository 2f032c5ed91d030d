use std::collections::{BTreeMap, BTreeSet};

use crate::absent;
use crate::app::{self, App, AppCase, ClientOwners};
use crate::body::CERTIFICATE_V1;
use crate::contest::Contests;
use crate::departure;
use crate::docket::{Docket, Judgement};
use crate::object::{Key, Kind, Live, OwnerIdentity};
use crate::output::{ObjectRef, Patch, Plan, SecretCopy};
use crate::prune::{due, prune, released};
use crate::settled::{Alarm, Settled};
use crate::tenant::{self, Orphan, Parting, Shards, Tenant, TenantCase};
use crate::view::View;
use crate::wanted::Wanted;
use crate::world::World;

/// Decides everything; the same world always gives the same plan.
pub fn plan(world: &World) -> Plan {
    let view = View::new(world);
    let (cases, shards, judgement) = lower_and_arbitrate(&view);
    let (mut wanted, made) = render(&view, &cases, &shards, &judgement);
    let gone = prune(&view, &wanted, &cases.staying());
    let contests = Contests::of(&view, &wanted);
    let partings = tenant::partings(&view, &cases.tenants);
    let orphans = tenant::orphans(&view, &wanted);
    let settled = Settled { view: &view, judgement: &judgement, wanted: &wanted, contests: &contests };
    let mut plan = status(&settled, &cases, &shards, &made);
    let farewells = farewells(&settled, &cases, &made);
    let departures = cases.departures(&view, &mut plan);
    plan.guard = cases.unguarded(world);
    let (strays, told): (Vec<_>, Vec<_>) = wanted.take_strays().into_iter().unzip();
    plan.events.extend(told);
    plan.takeovers = tenant::takeovers(&view, made.tenants.iter());
    plan.dials = tenant::dials(&view, cases.tenants.iter().zip(&made.tenants));
    let abandoned = tenant::abandoned(&view, &wanted);
    plan.apply = wanted.applies();
    plan.copies = cases.copies(&judgement);
    let due = due(&view, &gone, |maker| partings.iter().any(|parting| parting.holds(maker)));
    let due = due.filter(|key| !cases.need(&view, key));
    plan.delete = due.map(|key| key.object_ref(api_version(key.kind, world))).collect();
    plan.delete.extend(orphans.iter().filter(|orphan| orphan.is_due).map(Orphan::object_ref));
    plan.delete.extend(farewells.values().filter_map(|one| Some(one.certificate.as_ref()?.object_ref(CERTIFICATE_V1))));
    plan.delete.extend(abandoned);
    let leaving = cases.leaving();
    let released = released(&gone, &leaving).into_iter().map(OwnerIdentity::object_ref);
    let is_over = |owner: &ObjectRef| {
        let mut parting = partings.iter().filter(|parting| parting.owner() == *owner);
        !farewells.contains_key(owner)
            && !departures.contains(owner)
            && parting.all(|parting| parting.is_over(&orphans))
    };
    plan.release = released.filter(is_over).collect();
    let leave = |case: &&AppCase<'_>| plan.release.contains(&case.app.identity().object_ref());
    plan.events.extend(cases.apps.iter().filter(leave).filter_map(|case| app::left_behind(&view, &case.app)));
    part(&mut plan, &partings);
    plan.releases.extend(made.tenants.iter().filter_map(|rendered| rendered.provision.step.clone()));
    plan.patches = app::removal(farewells.into_values().flat_map(|one| one.entries).collect());
    plan.patches.extend(strays);
    plan.patches.extend(cases.heeded(&made));
    plan.patches.extend(cases.policies_that_may_go(&view));
    // Stable: what is taken out of one Gateway keeps its order.
    plan.patches.sort_by(|one, other| one.object.cmp(&other.object));
    plan.provision = made.apps.iter().filter_map(|made| made.sign_in.as_ref()?.request.clone()).collect();
    plan
}

/// All owners, the oldest first.
struct Cases<'a> {
    apps: Vec<AppCase<'a>>,
    tenants: Vec<TenantCase<'a>>,
}

/// What was made for each of them, in the same order.
struct Made {
    apps: Vec<app::Rendered>,
    tenants: Vec<tenant::Rendered>,
}

fn lower_and_arbitrate<'a>(view: &View<'a>) -> (Cases<'a>, Shards<'a>, Judgement) {
    let mut docket = Docket::default();
    let mut apps: Vec<App<'a>> = view.world.apps.iter().map(|source| App::from_resource(source, view)).collect();
    apps.sort_by(|left, right| left.owner.by_age(&right.owner));
    let mut tenants: Vec<Tenant<'a>> = view.world.tenants.iter().map(|source| Tenant::from_resource(source)).collect();
    tenants.sort_by(|left, right| left.owner.by_age(&right.owner));
    let apps = apps.into_iter().map(|app| app::lower(view, app, &mut docket)).collect();
    let (tenants, shards) = tenant::lower(view, tenants, &mut docket);
    absent::lower(view, &mut docket);
    let judgement = docket.settle(&shards.rooms());
    (Cases { apps, tenants }, shards, judgement)
}

fn render<'v, 'a>(
    view: &'v View<'a>,
    cases: &Cases<'a>,
    shards: &Shards<'a>,
    judgement: &Judgement,
) -> (Wanted<'v, 'a>, Made) {
    let mut wanted = Wanted::new(view);
    let owners = ClientOwners::of(view, &cases.apps);
    let apps = cases.apps.iter().map(|case| app::render(view, case, (judgement, &owners), &mut wanted)).collect();
    let tenants = cases.tenants.iter().map(|case| tenant::render(view, case, shards, judgement, &mut wanted));
    let tenants: Vec<_> = tenants.collect();
    tenant::render_gateways(view, tenants.iter(), &mut wanted);
    (wanted, Made { apps, tenants })
}

fn status<'a>(settled: &Settled<'_, 'a>, cases: &Cases<'a>, shards: &Shards<'a>, made: &Made) -> Plan {
    let mut alarm = Alarm::default();
    let mut plan = Plan::default();
    for (case, rendered) in cases.apps.iter().zip(&made.apps).filter(|(case, _)| !case.app.is_leaving()) {
        let (write, events) = app::status(settled, case, rendered, &mut alarm);
        plan.statuses.extend(write);
        plan.events.extend(events);
    }
    for (case, rendered) in cases.tenants.iter().zip(&made.tenants).filter(|(case, _)| !case.tenant.is_leaving()) {
        let (write, events) = tenant::status(settled, shards, case, rendered, &mut alarm);
        plan.statuses.extend(write);
        plan.events.extend(events);
        if let Some(at) = rendered.provision.wake_at {
            alarm.set(at);
        }
    }
    plan.wake_at = alarm.0;
    plan
}

/// What is done and said about tenants that go.
fn part(plan: &mut Plan, partings: &[Parting<'_>]) {
    let mut alarm = Alarm(plan.wake_at);
    for parting in partings {
        plan.releases.extend(parting.steps.iter().cloned());
        if let Some(at) = parting.wake_at {
            alarm.set(at);
        }
        if parting.is_guarded() && !plan.release.contains(&parting.owner()) {
            let (write, event) = parting.status();
            plan.statuses.extend(write);
            plan.events.extend(event);
        }
    }
    plan.wake_at = alarm.0;
}

/// What goes of the former operator's layout, by app; apps of which nothing goes are not there.
fn farewells<'a>(settled: &Settled<'_, 'a>, cases: &Cases<'a>, made: &Made) -> BTreeMap<ObjectRef, app::Farewell<'a>> {
    let all = cases
        .apps
        .iter()
        .zip(&made.apps)
        .map(|(case, rendered)| (case.app.identity().object_ref(), app::farewell(settled, case, rendered)));
    all.filter(|(_, farewell)| !farewell.is_empty()).collect()
}

impl<'a> Cases<'a> {
    fn owners(&self) -> impl Iterator<Item = (OwnerIdentity<'a>, bool, &'a Option<Vec<String>>)> {
        let apps =
            self.apps.iter().map(|case| (case.app.identity(), case.app.is_leaving(), &case.app.metadata().finalizers));
        let tenants = self
            .tenants
            .iter()
            .map(|case| (case.tenant.identity(), case.tenant.is_leaving(), &case.tenant.source.metadata.finalizers));
        apps.chain(tenants)
    }

    /// The Secrets that are to be where their apps move to.
    fn copies(&self, judgement: &Judgement) -> Vec<SecretCopy> {
        let web = self.apps.iter().filter(|case| case.refusal.is_none()).filter_map(|case| case.web.as_ref());
        let granted = web.filter(|web| web.claim.is_some_and(|claim| judgement.is_granted(claim)));
        let copies = granted.filter_map(|web| web.section.migration()?.copy().cloned());
        let mut copies: Vec<_> = copies.collect();
        copies.sort();
        copies
    }

    /// Apps that may not go yet, since something of theirs is left at the identity provider.
    fn departures(&self, view: &View<'_>, plan: &mut Plan) -> BTreeSet<ObjectRef> {
        let leaving = self.apps.iter().filter(|case| case.app.is_leaving());
        let waiting = leaving.filter(|case| departure::waits(view, &case.app, plan));
        waiting.map(|case| case.app.identity().object_ref()).collect()
    }

    /// Takes the annotation away that asked for clients to be made again, once they have been.
    fn heeded<'s>(&'s self, made: &'s Made) -> impl Iterator<Item = Patch> + 's {
        let heeded = self.apps.iter().zip(&made.apps);
        heeded.filter_map(|(case, made)| {
            let value = made.sign_in.as_ref()?.heeded.as_ref()?;
            Some(departure::heeded(case.app.identity().object_ref(), value))
        })
    }

    /// Whether an object is a policy that has to stay until the routes behind it are gone.
    fn need(&self, view: &View<'_>, key: &Key) -> bool {
        let Some(live) = view.live(key).filter(|_| key.kind == Kind::SecurityPolicy) else { return false };
        let mut owner = self.apps.iter().filter(|case| live.maker().is(case.app.identity()));
        owner.any(|case| departure::needs_policy(view, &case.app))
    }

    /// Policies that wait to go, and that nothing needs any more.
    fn policies_that_may_go<'s>(&'s self, view: &'s View<'_>) -> impl Iterator<Item = Patch> + 's {
        let going = view.world.security_policies.iter().filter(|one| one.metadata.deletion_timestamp.is_some());
        going.filter_map(|policy| {
            let owner = self.apps.iter().find(|case| Live::SecurityPolicy(policy).maker().is(case.app.identity()));
            departure::policy(view, policy, owner.map(|case| &case.app))
        })
    }

    /// The uids of those that are not being deleted.
    fn staying(&self) -> BTreeSet<&'a str> {
        self.owners().filter(|(_, is_leaving, _)| !is_leaving).map(|(owner, _, _)| owner.uid).collect()
    }

    /// Those that are being deleted and wait for the contract's finalizer to go.
    fn leaving(&self) -> Vec<OwnerIdentity<'a>> {
        let owners = self
            .owners()
            .filter(|(owner, is_leaving, finalizers)| *is_leaving && is_guarded(owner, finalizers.as_ref()));
        owners.map(|(owner, _, _)| owner).collect()
    }

    /// Those that stay and could go before what was made for them is gone.
    fn unguarded(&self, world: &World) -> Vec<ObjectRef> {
        let owners = self.owners().filter(|(owner, is_leaving, finalizers)| {
            world.config.guard_deletion && !is_leaving && !is_guarded(owner, finalizers.as_ref())
        });
        owners.map(|(owner, _, _)| owner.object_ref()).collect()
    }
}

fn is_guarded(owner: &OwnerIdentity<'_>, finalizers: Option<&Vec<String>>) -> bool {
    finalizers.into_iter().flatten().any(|finalizer| finalizer == owner.kind.finalizer())
}

fn api_version(kind: Kind, world: &World) -> &'static str {
    use crate::body::{
        ADMIN_NETWORK_POLICY_V1ALPHA1, CLUSTER_NETWORK_POLICY_V1ALPHA2, DNS_ENDPOINT_V1ALPHA1, FLUX_SOURCE_V1,
        GATEWAY_API_V1, HELM_RELEASE_V2, NETWORK_POLICY_V1, RBAC_V1, SECURITY_POLICY_V1ALPHA1,
    };
    match (kind, world.served.tls_routes) {
        (Kind::Namespace | Kind::ResourceQuota | Kind::LimitRange | Kind::ConfigMap, _) => "v1",
        (Kind::OciRepository | Kind::HelmRepository, _) => FLUX_SOURCE_V1,
        (Kind::HelmRelease, _) => HELM_RELEASE_V2,
        (Kind::NetworkPolicy, _) => NETWORK_POLICY_V1,
        (Kind::Role | Kind::RoleBinding, _) => RBAC_V1,
        (Kind::AdminNetworkPolicy, _) => ADMIN_NETWORK_POLICY_V1ALPHA1,
        (Kind::ClusterNetworkPolicy, _) => CLUSTER_NETWORK_POLICY_V1ALPHA2,
        (Kind::DnsEndpoint, _) => DNS_ENDPOINT_V1ALPHA1,
        (Kind::Certificate, _) => CERTIFICATE_V1,
        (Kind::SecurityPolicy, _) => SECURITY_POLICY_V1ALPHA1,
        (Kind::TlsRoute, Some(version)) => version.api_version(),
        _ => GATEWAY_API_V1,
    }
}
