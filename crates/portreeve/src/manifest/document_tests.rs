use serde_json::json;

use super::*;

fn parse(text: &str) -> Vec<Result<Document, Finding>> {
    Document::parse_all(&"f.yaml".into(), text)
}

fn only(text: &str) -> Document {
    let mut documents = parse(text);
    assert_eq!(documents.len(), 1, "{documents:?}");
    documents.remove(0).unwrap()
}

fn path(text: &str) -> Path {
    let segment = |part: &str| part.parse().map_or_else(|_| Segment::Key(part.into()), Segment::Index);
    Path(text.split('/').filter(|part| !part.is_empty()).map(segment).collect())
}

#[test]
fn every_field_knows_its_line() {
    let text = "# a comment\n\nkind: A\nspec:\n  list:\n  - name: x\n    port: 1\n  -\n    name: y\n  flow: {a: 1,\n    b: 2}\n";
    let document = only(text);
    let lines = [
        ("", 3),
        ("kind", 3),
        ("spec", 4),
        ("spec/list", 5),
        ("spec/list/0", 6),
        ("spec/list/0/port", 7),
        ("spec/list/1", 9),
        ("spec/list/1/name", 9),
        ("spec/flow/b", 11),
        // What is absent is where the nearest thing above it is.
        ("spec/list/1/port", 9),
        ("spec/list/7", 6),
        ("status/phase", 3),
    ];
    for (field, line) in lines {
        assert_eq!(document.place(&path(field)).line, Some(line), "{field}");
    }
}

#[test]
fn documents_are_cut_at_markers_and_keep_their_lines() {
    let text = "%YAML 1.2\n---\na: |\n  text\n --- no marker\n---\n# nothing\n--- # second\nb: 2\n...\n---\n---\nc: 3\n--- {d: 4}\n----: 5\n";
    let documents = parse(text);
    let found: Vec<_> = documents
        .iter()
        .map(|document| document.as_ref().map(|d| (d.place(&Path::default()).line.unwrap(), d.to_json())))
        .map(|document| document.map_err(|finding| finding.place.line.unwrap()))
        .collect();
    assert_eq!(found[0], Err(5), "{:?}", documents[0]);
    assert_eq!(found[1], Ok((9, json!({"b": 2}))));
    assert_eq!(found[2], Ok((13, json!({"c": 3}))));
    assert_eq!(found.len(), 4);
}

#[test]
fn values_become_what_kubectl_makes_of_them() {
    let text = "int: 8786\nneg: -1\nfloat: 1.5\nyes: yes\ntext: 'yes'\nnothing: ~\nempty:\ndate: 2024-01-01\nversion: 1.2.3\nnumeric: \"08\"\n1: x\n";
    let expected = json!({
        "int": 8786, "neg": -1, "float": 1.5, "yes": true, "text": "yes", "nothing": null, "empty": null,
        "date": "2024-01-01", "version": "1.2.3", "numeric": "08", "1": "x",
    });
    assert_eq!(only(text).to_json(), expected);
}

#[test]
fn anchors_and_merge_keys_are_expanded() {
    let document = only("base: &b {x: 1}\nuse: *b\nmerged:\n  <<: *b\n  y: 2\n");
    assert_eq!(document.to_json(), json!({"base": {"x": 1}, "use": {"x": 1}, "merged": {"x": 1, "y": 2}}));
    assert_eq!(document.place(&path("use/x")).line, Some(2));
}

#[test]
fn json_with_tabs_crlf_and_a_bom_is_read() {
    assert_eq!(
        only("{\n\t\"kind\": \"A\",\n\t\"list\": [1,\n\t\t2]\n}\n").to_json(),
        json!({"kind": "A", "list": [1, 2]})
    );
    let document = only("\u{feff}kind: A\r\nspec:\r\n  port: 1\r\n");
    assert_eq!(document.to_json(), json!({"kind": "A", "spec": {"port": 1}}));
    assert_eq!(document.place(&path("spec/port")).line, Some(3));
}

#[test]
fn what_cannot_be_read_names_its_line_and_takes_nothing_with_it() {
    let cases = [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 1, "not valid YAML"),
        ("a: 1\na: 2\n", 2, "duplicate mapping key `a`"),
        ("a: .inf\n", 1, "not a finite number"),
        ("a: *nowhere\n", 1, "reference to unknown value"),
        ("a: \"unfinished\nb: 2\n", 1, "not valid YAML"),
    ];
    for (text, line, message) in cases {
        let documents = parse(&format!("first: 1\n---\n{text}---\nlast: 1\n"));
        let [Ok(_), Err(finding), Ok(_)] = documents.as_slice() else { panic!("{text:?}: {documents:?}") };
        assert!(finding.message.contains(message), "{finding}");
        assert_eq!(finding.place.line, Some(line + 2), "{finding}");
    }
}

#[test]
fn hostile_input_is_refused_and_not_suffered() {
    let deep = "[".repeat(20_000);
    let level =
        |(name, below): (char, char)| format!("{name}: &{name} [{}*{below}]\n", format!("*{below}, ").repeat(9));
    let bomb: String = ["a: &a x\n".to_owned()].into_iter().chain(('b'..'k').zip('a'..).map(level)).collect();
    for text in [deep, bomb] {
        let documents = parse(&text);
        assert!(matches!(documents.as_slice(), [Err(_)]), "{text:.100}");
    }
}

/// Origin: `kubectl get services -A -o json` of 8,000 Services, 3.5 MB, was "too large or too complex".
#[test]
fn a_list_of_a_whole_cluster_is_read() {
    let item = r#"{"kind": "Service", "ports": [{"port": 80}, {"port": 81}, {"port": 82}, {"port": 83}]}"#;
    let text = format!("[{item}{}]", format!(",\n{item}").repeat(24_999));
    let documents = parse(&text);
    let [Ok(document)] = documents.as_slice() else { panic!("{:?}", documents.first().map(Result::is_ok)) };
    assert_eq!(document.to_json().as_array().map(Vec::len), Some(25_000));
}
