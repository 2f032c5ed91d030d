//! The gateway's cookies: what they are called, and how a session is spread over several.
//!
//! Browsers take a cookie with the prefix `__Host-` only over HTTPS, for the whole of one host and for no domain, so no
//! other host can set or read one (RFC 6265bis, section 4.1.3.2).

use aws_lc_rs::digest::{SHA256, digest};
use http::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};

/// What the names of all of them start with. Backends never see these.
const PREFIX: &str = "__Host-portreeve-";
/// How much of a session fits into one cookie: browsers keep 4096 bytes with name and attributes.
const CHUNK: usize = 3600;
/// How many cookies a session may take; with a name each, they stay within the heads of requests that are read here.
const MAX_CHUNKS: usize = 10;
/// How long a sign-in may take, in seconds.
pub(super) const ATTEMPT_LIFE: u64 = 600;
/// How many sign-ins may be going on in one browser; the oldest are forgotten.
const MAX_ATTEMPTS: usize = 8;

/// The gateway's cookies in a request, by name without [`PREFIX`].
pub(super) struct Cookies(Vec<(String, String)>);

/// The names of the cookies of one policy.
pub(super) struct Names(String);

impl Names {
    pub(super) fn of(login: &str) -> Self {
        Self(short_hash(login))
    }

    fn chunk(&self, place: usize) -> String {
        format!("{}-{place}", self.0)
    }

    /// The time comes first, so that names sort by age.
    fn attempt(&self, state: &str, now: u64) -> String {
        format!("{}-s{now:012x}-{}", self.0, short_hash(state))
    }

    fn is_attempt(&self, name: &str) -> bool {
        name.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with("-s"))
    }

    fn is_session(&self, name: &str) -> bool {
        name.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with('-') && !rest.starts_with("-s"))
    }
}

impl Cookies {
    /// Takes the gateway's cookies out of the headers of a request, and those of these names.
    pub(super) fn take(headers: &mut HeaderMap, withheld: &[String]) -> Self {
        let mut own = Vec::new();
        let is_meant = |pair: &[u8]| {
            let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
            contains(pair, PREFIX.as_bytes()) || withheld.iter().any(|withheld| withheld.as_bytes() == name)
        };
        let has_meant = |value: &HeaderValue| value.as_bytes().split(|byte| *byte == b';').any(is_meant);
        if !headers.get_all(COOKIE).iter().any(has_meant) {
            return Self(own);
        }
        let all: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
        headers.remove(COOKIE);
        for value in all {
            let pairs = value.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let (ours, others): (Vec<&[u8]>, Vec<&[u8]>) = pairs.partition(|pair| is_meant(pair));
            own.extend(ours.into_iter().filter_map(|pair| {
                let (name, value) = std::str::from_utf8(pair).ok()?.strip_prefix(PREFIX)?.split_once('=')?;
                Some((name.to_owned(), value.to_owned()))
            }));
            let others = others.join(&b"; "[..]);
            if !others.is_empty()
                && let Ok(others) = HeaderValue::from_bytes(&others)
            {
                headers.append(COOKIE, others);
            }
        }
        Self(own)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The session of a policy, as it was cut into cookies.
    pub(super) fn session(&self, names: &Names) -> Option<String> {
        let chunks: Vec<&str> = (0..MAX_CHUNKS).map_while(|place| self.get(&names.chunk(place))).collect();
        (!chunks.is_empty()).then(|| chunks.concat())
    }

    /// The cookies by which a browser keeps a session and forgets what it had before; nothing where it is too large.
    pub(super) fn keep_session(&self, names: &Names, sealed: &str) -> Option<Vec<HeaderValue>> {
        let chunks: Vec<&[u8]> = sealed.as_bytes().chunks(CHUNK).collect();
        if chunks.len() > MAX_CHUNKS {
            return None;
        }
        let mut kept = Vec::new();
        for (place, chunk) in chunks.iter().enumerate() {
            kept.push(set(&names.chunk(place), std::str::from_utf8(chunk).ok()?, "")?);
        }
        let is_kept = |name: &str| (0..chunks.len()).any(|place| names.chunk(place) == name);
        kept.extend(self.forget(|name| names.is_session(name) && !is_kept(name)));
        Some(kept)
    }

    /// Makes the browser forget the session.
    pub(super) fn forget_session(&self, names: &Names) -> Vec<HeaderValue> {
        self.forget(|name| names.is_session(name))
    }

    /// What was kept for the sign-in of this state.
    pub(super) fn attempt(&self, names: &Names, state: &str) -> Option<&str> {
        let hash = short_hash(state);
        let is_meant = |name: &str| names.is_attempt(name) && name.ends_with(&hash);
        self.0.iter().find(|(name, _)| is_meant(name)).map(|(_, value)| value.as_str())
    }

    /// The cookies by which a browser keeps one more sign-in that is going on.
    pub(super) fn keep_attempt(&self, names: &Names, state: &str, sealed: &str, now: u64) -> Option<Vec<HeaderValue>> {
        let mut known: Vec<&str> =
            self.0.iter().map(|(name, _)| name.as_str()).filter(|name| names.is_attempt(name)).collect();
        known.sort_unstable();
        let surplus = (known.len() + 1).saturating_sub(MAX_ATTEMPTS);
        let mut kept = self.forget(|name| known[..surplus].contains(&name));
        kept.push(set(&names.attempt(state, now), sealed, &format!("; Max-Age={ATTEMPT_LIFE}"))?);
        Some(kept)
    }

    /// Makes the browser forget a sign-in that has come to its end.
    pub(super) fn forget_attempt(&self, names: &Names, state: &str) -> Vec<HeaderValue> {
        let hash = short_hash(state);
        self.forget(|name| names.is_attempt(name) && name.ends_with(&hash))
    }

    fn forget(&self, is_meant: impl Fn(&str) -> bool) -> Vec<HeaderValue> {
        self.0.iter().filter(|(name, _)| is_meant(name)).filter_map(|(name, _)| set(name, "", "; Max-Age=0")).collect()
    }
}

/// Takes out of a backend's answer what would set the gateway's own cookies.
pub(crate) fn guard(answer: &mut HeaderMap) {
    let is_own = |value: &HeaderValue| contains(value.as_bytes(), PREFIX.as_bytes());
    if answer.get_all(SET_COOKIE).iter().any(is_own) {
        let all: Vec<HeaderValue> = answer.get_all(SET_COOKIE).iter().cloned().collect();
        answer.remove(SET_COOKIE);
        for value in all.into_iter().filter(|value| !is_own(value)) {
            answer.append(SET_COOKIE, value);
        }
    }
}

fn set(name: &str, value: &str, more: &str) -> Option<HeaderValue> {
    format!("{PREFIX}{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax{more}").parse().ok()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn short_hash(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    hash.as_ref()[..8].iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookies: &[String]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(COOKIE, cookie.parse().unwrap());
        }
        headers
    }

    /// What a browser would send back, and what it would forget.
    fn sent(set: &[HeaderValue]) -> (Vec<String>, usize) {
        let all: Vec<&str> = set.iter().map(|value| value.to_str().unwrap()).collect();
        for cookie in &all {
            assert!(
                cookie.contains("; Path=/; Secure; HttpOnly; SameSite=Lax") && !cookie.contains("Domain"),
                "{cookie}"
            );
            assert!(cookie.len() <= 4096, "{}", cookie.len());
        }
        let kept = all.iter().filter(|cookie| !cookie.contains("Max-Age=0"));
        let kept: Vec<_> = kept.map(|cookie| cookie.split(';').next().unwrap().to_owned()).collect();
        (kept.clone(), all.len() - kept.len())
    }

    #[test]
    fn a_backend_sees_its_own_cookies_only() {
        let mut map = headers(&["a=1; __Host-portreeve-x-0=s; b=2".to_owned(), "__Host-portreeve-y-0=t".to_owned()]);
        let cookies = Cookies::take(&mut map, &[]);
        assert_eq!(map.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert_eq!((cookies.get("x-0"), cookies.get("y-0")), (Some("s"), Some("t")));
        let mut map = headers(&["a=1;b=2".to_owned()]);
        Cookies::take(&mut map, &[]);
        assert_eq!(map[COOKIE], "a=1;b=2", "what is none of ours is not touched");
        let mut map = headers(&["a=1; IdToken-7=forged; b=2".to_owned()]);
        Cookies::take(&mut map, &["IdToken-7".to_owned()]);
        assert_eq!(map[COOKIE], "a=1; b=2", "another gateway would vouch for it");
    }

    #[test]
    fn a_backend_sets_its_own_cookies_only() {
        let mut map = HeaderMap::new();
        for cookie in ["a=1; Path=/", "__Host-portreeve-x-0=planted; Path=/; Secure", "b=2"] {
            map.append(SET_COOKIE, cookie.parse().unwrap());
        }
        guard(&mut map);
        assert_eq!(map.get_all(SET_COOKIE).iter().collect::<Vec<_>>(), ["a=1; Path=/", "b=2"]);
    }

    #[test]
    fn a_large_session_comes_back_whole_and_a_smaller_one_replaces_it() {
        let names = Names::of("team/app");
        let large: String = (0..9000).map(|number| char::from(b'a' + u8::try_from(number % 26).unwrap())).collect();
        let (kept, _) = sent(&Cookies(Vec::new()).keep_session(&names, &large).unwrap());
        assert_eq!(kept.len(), 3);
        let cookies = Cookies::take(&mut headers(&[kept.join("; ")]), &[]);
        assert_eq!(cookies.session(&names).unwrap(), large);
        assert_eq!(cookies.session(&Names::of("team/other")), None);
        let (kept, forgotten) = sent(&cookies.keep_session(&names, "small").unwrap());
        assert_eq!((kept.len(), forgotten), (1, 2));
        assert_eq!(sent(&cookies.forget_session(&names)), (vec![], 3));
        assert!(cookies.keep_session(&names, &"x".repeat(CHUNK * MAX_CHUNKS + 1)).is_none());
    }

    #[test]
    fn sign_ins_in_many_tabs_are_kept_apart_and_not_for_ever() {
        let names = Names::of("team/app");
        let mut jar = Vec::new();
        for tab in 0..MAX_ATTEMPTS as u64 {
            let cookies = Cookies::take(&mut headers(&[jar.join("; ")]), &[]);
            let (kept, forgotten) =
                sent(&cookies.keep_attempt(&names, &format!("state-{tab}"), &format!("v{tab}"), 1000 + tab).unwrap());
            assert_eq!(forgotten, 0);
            jar.extend(kept);
        }
        let cookies = Cookies::take(&mut headers(&[jar.join("; ")]), &[]);
        assert_eq!(cookies.attempt(&names, "state-3"), Some("v3"));
        assert_eq!(cookies.attempt(&names, "state-99"), None);
        assert_eq!(cookies.session(&names), None, "a sign-in that goes on is no session");
        let set = cookies.keep_attempt(&names, "state-x", "vx", 2000).unwrap();
        let gone = set.iter().find(|cookie| cookie.to_str().unwrap().contains("Max-Age=0")).unwrap();
        assert!(gone.to_str().unwrap().contains(&short_hash("state-0")), "the oldest goes: {gone:?}");
    }
}
