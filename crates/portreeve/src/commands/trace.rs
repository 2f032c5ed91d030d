//! `portreeve trace`: where a connection or request goes, and if nowhere, why.

use std::io::{self, Write};

use http::Uri;
use http::uri::Scheme;
use portreeve_attach::{
    GatewayPods, Hop, Objects, Origin, Pods, Question, RequestQuestion, Settings, Trace, Verdict, trace,
};
use portreeve_names::Hostname;
use serde::Serialize;
use serde_json::Value;

use super::{complain, look, write_json};
use crate::cli::{Output, Source, TraceArgs};
use crate::exit::Exit;
use crate::live;
use crate::manifest::Finding;
use crate::output::{print, say};
use crate::pods::PodsArg;
use crate::report::{SocketStates, State};
use crate::text::Style;

/// A command line that asks nothing that could be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadQuestion {
    /// The URL cannot be used.
    #[error("{0:?} is not http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")]
    Url(String),
    /// The server name cannot be one.
    #[error("{0:?} is no host name, so no client could ask for it")]
    Name(String),
    /// Nothing is asked for.
    #[error("say what is asked for: a URL, or --port and --sni")]
    Nothing,
    /// Two things are asked for.
    #[error("a URL is asked for, or --port and --sni, not both")]
    Both,
}

/// What is printed.
#[derive(Serialize)]
struct Printed<'a> {
    /// Whether it arrives.
    served: bool,
    #[serde(flatten)]
    trace: &'a Trace,
    findings: &'a [Finding],
}

/// What is looked at.
struct Found {
    objects: Objects,
    settings: Settings,
    findings: Vec<Finding>,
    sockets: SocketStates,
}

/// Runs the command.
pub async fn run(mut arguments: TraceArgs) -> anyhow::Result<Exit> {
    arguments.sort_out();
    let mut question = question(&arguments)?;
    let TraceArgs { manifests, output, cluster, choices, input, .. } = arguments;
    let found = match input.into_source(manifests, cluster, &choices, |name| std::env::var_os(name))? {
        Source::Directory(input) => {
            let found = look(&input)?;
            complain(&found.findings);
            let objects = found.world.attach_objects();
            Found { objects, settings: input.settings, findings: found.findings, sockets: found.sockets }
        }
        Source::Cluster(source) => {
            let settings = source.settings.clone();
            let live = live::read(*source).await?;
            live.expect_traced()?;
            Found { objects: live.attach_objects(), settings, findings: Vec::new(), sockets: SocketStates::new() }
        }
    };
    if let Some(note) = look_behind_the_map(&mut question, &found.sockets) {
        say(note);
    }
    let answer = trace(&found.objects, &found.settings, &question);
    let printed = Printed { served: answer.is_served(), trace: &answer, findings: &found.findings };
    print(|out| match output {
        Output::Json => write_json(out, &printed),
        Output::Yaml => write_yaml(out, &answer),
        Output::Table => write_table(out, &answer, Style::of_stdout()),
    })?;
    Ok(if answer.is_served() { Exit::Good } else { Exit::Refused })
}

fn question(arguments: &TraceArgs) -> Result<Question, BadQuestion> {
    let gateway = arguments.gateway.clone();
    let from = origin(arguments);
    match (&arguments.url, arguments.port) {
        (None, None) => return Err(BadQuestion::Nothing),
        (Some(_), Some(_)) => return Err(BadQuestion::Both),
        _ => {}
    }
    let Some(url) = &arguments.url else {
        let name =
            arguments.sni.as_deref().map(|name| Hostname::parse(name).map_err(|_| BadQuestion::Name(name.to_owned())));
        let port = arguments.port.unwrap_or_default();
        // Whoever names no server may still speak TLS; the listener decides.
        return Ok(Question {
            gateway,
            port,
            tls: arguments.sni.is_some(),
            name: name.transpose()?,
            request: None,
            from,
        });
    };
    let bad = || BadQuestion::Url(url.clone());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let tls = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        Some(scheme) if *scheme == Scheme::HTTP => false,
        _ => return Err(bad()),
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?;
    let host = Some(authority.host()).filter(|host| !host.is_empty()).ok_or_else(bad)?;
    // `Uri` takes any text for a port.
    let port =
        authority.as_str().strip_prefix(host).and_then(|rest| rest.strip_prefix(':')).filter(|port| !port.is_empty());
    let port = port.map(|port| port.parse::<u16>().map_err(|_| bad())).transpose()?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Ok(Question {
        gateway,
        port: port.unwrap_or(if tls { 443 } else { 80 }),
        tls,
        // An IP address is no name: clients send none for it.
        name: Hostname::parse(host).ok(),
        request: Some(RequestQuestion { method: arguments.method.to_uppercase(), path }),
        from,
    })
}

fn origin(arguments: &TraceArgs) -> Option<Origin> {
    let PodsArg { namespace, labels } = arguments.from.clone()?;
    let client = Pods { namespace, labels: Some(labels), addresses: Vec::new() };
    let PodsArg { namespace, labels } = arguments.gateway_pods.clone();
    Some(Origin { client, gateway: GatewayPods { namespace, labels, low_port_offset: arguments.low_port_offset } })
}

/// A port that no listener names may be the one that a listener's port is served on.
fn look_behind_the_map(question: &mut Question, sockets: &SocketStates) -> Option<String> {
    let of_gateway = |gateway: &str| question.gateway.as_deref().is_none_or(|asked| asked == gateway);
    if sockets.keys().any(|key| key.port == question.port) {
        return None;
    }
    let behind = sockets.iter().find_map(|(key, socket)| {
        let is_it = of_gateway(&key.gateway) && socket.as_ref().is_ok_and(|socket| socket.port() == question.port);
        is_it.then_some(key)
    })?;
    let note = format!("port {} is where port {} is served", question.port, behind.port);
    question.port = behind.port;
    Some(note)
}

fn write_yaml(out: &mut dyn Write, answer: &Trace) -> io::Result<()> {
    let text = serde_saphyr::to_string(answer).map_err(io::Error::other)?;
    out.write_all(text.as_bytes())
}

fn write_table(out: &mut dyn Write, answer: &Trace, style: Style) -> io::Result<()> {
    let mut table = style.table(&["", "HOP", "OBJECT", "FINDING"]);
    for hop in &answer.hops {
        let fix = hop.fix.as_ref().map(|fix| format!("\nto do: {fix}")).unwrap_or_default();
        let finding = format!("{}{fix}", hop.finding);
        table.add_row([style.state_mark(state(hop)), hop.kind, &hop.subject, &finding]);
    }
    writeln!(out, "{table}")?;
    for note in &answer.notes {
        writeln!(out, "{note}.")?;
    }
    let manifests: Vec<_> = answer.hops.iter().filter_map(|hop| hop.manifest.as_deref()).collect();
    write_manifests(out, &manifests)
}

fn state(hop: &Hop) -> State {
    match hop.verdict.as_deref() {
        Some(Verdict::Unknown { .. }) => State::Pending,
        _ if hop.ok => State::Ready,
        _ => State::Refused,
    }
}

/// Outside of the table, where they can be copied; what several hops need, once.
fn write_manifests(out: &mut dyn Write, manifests: &[&Value]) -> io::Result<()> {
    let is_new = |place: &usize| !manifests[..*place].contains(&manifests[*place]);
    for place in (0..manifests.len()).filter(is_new) {
        let text = serde_saphyr::to_string(manifests[place]).map_err(io::Error::other)?;
        write!(out, "---\n{text}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use portreeve_table::PortKey;

    use super::*;
    use crate::cli::{Command, RawArgs};

    fn asked(arguments: &[&str]) -> Result<Question, BadQuestion> {
        let arguments = [&["portreeve", "trace", "dir"], arguments].concat();
        match RawArgs::try_parse_from(arguments).map(|arguments| arguments.command) {
            Ok(Command::Trace(mut trace)) => {
                trace.sort_out();
                question(&trace)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_asked_for_is_a_url_or_a_port_with_or_without_a_directory() {
        for good in [&["https://a.test"][..], &["--port=443"], &["--port=443", "--sni=a.test"]] {
            assert!(asked(good).is_ok(), "{good:?}");
        }
        assert_eq!(asked(&[]).unwrap_err(), BadQuestion::Nothing);
        assert_eq!(asked(&["https://a.test", "--port=443"]).unwrap_err(), BadQuestion::Both);
        let arguments = RawArgs::try_parse_from(["portreeve", "trace", "https://a.test"]).unwrap();
        let Command::Trace(mut trace) = arguments.command else { panic!("another command") };
        trace.sort_out();
        assert_eq!((trace.manifests, trace.url.as_deref()), (None, Some("https://a.test")));
    }

    #[test]
    fn a_url_says_port_name_and_request() {
        let question = asked(&["https://Hub.example.com/lab?x=1"]).unwrap();
        assert_eq!(
            (question.port, question.tls, question.name.unwrap().to_string().as_str()),
            (443, true, "hub.example.com")
        );
        assert_eq!(question.request.unwrap().path, "/lab?x=1");
        let plain = asked(&["http://hub.example.com:8080", "--method=post"]).unwrap();
        assert_eq!((plain.port, plain.tls), (8080, false));
        let request = plain.request.unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/"));
        assert_eq!(asked(&["https://127.0.0.1/"]).unwrap().name, None);
        let bad_ports = ["https://a.test:99999/", "https://a.test:x/", "https://a.test:8443:1"];
        for bad in
            ["hub.example.com", "ftp://a.test", "https://", "/lab", "https://u@a.test"].into_iter().chain(bad_ports)
        {
            assert_eq!(asked(&[bad]).unwrap_err(), BadQuestion::Url(bad.into()));
        }
    }

    #[test]
    fn a_server_name_is_one_that_a_client_could_send() {
        assert!(asked(&["--port=443"]).unwrap().name.is_none());
        assert!(asked(&["--port=443", "--sni=a.test"]).unwrap().name.is_some());
        assert_eq!(asked(&["--port=443", "--sni=a b"]).unwrap_err(), BadQuestion::Name("a b".into()));
    }

    #[test]
    fn the_port_of_the_socket_is_understood_too() {
        let sockets: SocketStates =
            [(PortKey { gateway: "a/g".into(), port: 443 }, Ok("127.0.0.1:8443".parse().unwrap()))].into();
        let mut question = asked(&["https://a.test:8443/"]).unwrap();
        assert_eq!(
            look_behind_the_map(&mut question, &sockets).as_deref(),
            Some("port 8443 is where port 443 is served")
        );
        assert_eq!(question.port, 443);
        assert_eq!(look_behind_the_map(&mut question, &sockets), None);
        let mut other = Question { gateway: Some("a/h".into()), ..asked(&["https://a.test:8443/"]).unwrap() };
        assert_eq!(look_behind_the_map(&mut other, &sockets), None);
    }
}
