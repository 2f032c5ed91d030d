//! Who may write: the holder of the leases of all operators that Portreeve replaces.
//!
//! With several leases a candidate takes them in their order and goes after the next only while it holds those before it,
//! so that two candidates never wait for each other.
//!
//! A holder that loses a lease stops to write and waits for it again, instead of ending the process: what it knows of the
//! cluster stays true, and an API server that is away for a minute does not end every replica.

mod candidate;

use std::time::{Duration, Instant};

use candidate::{Candidate, Found, Move, Timing};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The lease of the NebariApp operator.
pub const NEBARI_LEASE: &str = "d77e3dc7.nebari.dev";
/// The lease of the tenant operator.
pub const TENANTS_LEASE: &str = "tenants.kubespaces.io";

/// The times that client-go uses by default.
const TIMING: Timing = Timing {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// Where leases are, and as whom they are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// What tells this process from every other; never used twice.
    pub identity: String,
    /// The leases, in the order in which they are taken.
    pub leases: Vec<LeaseName>,
}

/// Names a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Takes leases and keeps them, until it is told to stop; then it gives them back.
pub(crate) struct Keeper {
    client: Client,
    candidates: Vec<Candidate>,
    clock: fn() -> Timestamp,
    leading: watch::Sender<bool>,
    /// Why a lease cannot be looked at or taken, if so, for those who ask whether all is ready.
    failure: watch::Sender<Option<String>>,
}

impl Keeper {
    pub(crate) fn new(
        client: Client,
        election: &LeaderElection,
        clock: fn() -> Timestamp,
        leading: watch::Sender<bool>,
        failure: watch::Sender<Option<String>>,
    ) -> Self {
        let candidates =
            election.leases.iter().map(|lease| Candidate::new(lease, &election.identity, TIMING)).collect();
        Self { client, candidates, clock, leading, failure }
    }

    /// Runs until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = self.round() => {}
                () = stop.cancelled() => break,
            }
            tokio::select! {
                () = sleep(TIMING.retry) => {}
                () = stop.cancelled() => break,
            }
        }
        self.leading.send_replace(false);
        for (place, candidate) in self.candidates.iter().enumerate() {
            if let Err(error) = self.give_back(place).await {
                let failure = crate::text::chain(&error);
                tracing::warn!("lease {}: not given back: {failure}", candidate.lease());
            }
        }
    }

    async fn round(&mut self) {
        for place in 0..self.candidates.len() {
            // An answer that comes later than this cannot keep the lease.
            let left = self.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = left.unwrap_or(TIMING.renew_deadline).min(TIMING.renew_deadline);
            match timeout(limit, self.step(place)).await {
                Ok(Ok(())) => drop(self.failure.send_replace(None)),
                Ok(Err(error)) => self.complain(place, &crate::text::chain(&error)),
                Err(_) => self.complain(place, "no answer in time"),
            }
            self.publish();
            if !self.candidates[place].holds(Instant::now()) {
                break;
            }
        }
    }

    /// When the first lease that is held is lost, unless it is renewed.
    fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        self.candidates.iter().filter(|candidate| candidate.holds(now)).filter_map(Candidate::deadline).min()
    }

    fn publish(&self) {
        let now = Instant::now();
        let leads = self.candidates.iter().all(|candidate| candidate.holds(now));
        let changed = self.leading.send_if_modified(|leading| std::mem::replace(leading, leads) != leads);
        match (changed, leads) {
            (true, true) => tracing::info!("all leases are held: this replica writes now"),
            (true, false) => tracing::warn!("a lease is lost: this replica does not write any more"),
            (false, _) => {}
        }
    }

    async fn step(&mut self, place: usize) -> Result<(), kube::Error> {
        let name = self.candidates[place].lease().name.clone();
        let api = self.api(place);
        let lease = api.get_opt(&name).await?;
        let found = lease.as_ref().map(found_in);
        let candidate = &mut self.candidates[place];
        let (asked, next) = (Instant::now(), candidate.observe(found, Instant::now()));
        let spec =
            candidate.spec(next, lease.as_ref().and_then(|lease| lease.spec.as_ref()), MicroTime((self.clock)()));
        let Some(spec) = spec else { return Ok(()) };
        let metadata = lease
            .map_or_else(|| ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() }, |lease| lease.metadata);
        let lease = Lease { metadata, spec: Some(spec) };
        let written = match next {
            Move::Create => api.create(&PostParams::default(), &lease).await,
            _ => api.replace(&name, &PostParams::default(), &lease).await,
        };
        match written {
            Ok(lease) => self.candidates[place].wrote(found_in(&lease), asked),
            // Another one was quicker; the next look tells.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn api(&self, place: usize) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.candidates[place].lease().namespace)
    }

    /// Lets others take a lease at once.
    async fn give_back(&self, place: usize) -> Result<(), kube::Error> {
        let (api, candidate) = (self.api(place), &self.candidates[place]);
        let name = &candidate.lease().name;
        loop {
            let Some(mut lease) = api.get_opt(name).await? else { return Ok(()) };
            let is_ours = |spec: &&mut LeaseSpec| spec.holder_identity.as_deref() == Some(candidate.identity());
            let Some(spec) = lease.spec.as_mut().filter(is_ours) else { return Ok(()) };
            // As client-go does: nobody holds it, for one second.
            (spec.holder_identity, spec.lease_duration_seconds) = (Some(String::new()), Some(1));
            spec.renew_time = Some(MicroTime((self.clock)()));
            match api.replace(name, &PostParams::default(), &lease).await {
                // A renewal that was under way at the signal to stop has arrived meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                result => return result.map(drop),
            }
        }
    }

    /// Says what is wrong once, not every two seconds.
    fn complain(&mut self, place: usize, failure: &str) {
        let failure = format!("lease {}: {failure}", self.candidates[place].lease());
        if self.failure.borrow().as_ref() != Some(&failure) {
            tracing::warn!("{failure}");
            self.failure.send_replace(Some(failure));
        }
    }
}

fn found_in(lease: &Lease) -> Found {
    let LeaseSpec { holder_identity, lease_duration_seconds, .. } = lease.spec.clone().unwrap_or_default();
    Found {
        holder: holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(
            lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default(),
        ),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}
