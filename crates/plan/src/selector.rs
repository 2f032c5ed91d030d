//! Label selectors: what one matches, and what two of them match together.

use std::collections::BTreeMap;

use portreeve_api::LabelSelector;

/// One requirement of a selector: key, operator, values.
pub(crate) type Requirement<'s> = (&'s str, &'s str, &'s [String]);

/// Whether a selector of these parts matches what has these labels.
pub(crate) fn selects<'s, 'l>(
    labels: Option<&BTreeMap<String, String>>,
    requirements: impl IntoIterator<Item = Requirement<'s>>,
    label: impl Fn(&str) -> Option<&'l str>,
) -> bool {
    let by_label = labels.into_iter().flatten().all(|(key, value)| label(key) == Some(value));
    let by_requirement = requirements.into_iter().all(|(key, operator, values)| {
        let found = label(key);
        let listed = || values.iter().any(|value| Some(value.as_str()) == found);
        match operator {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    });
    by_label && by_requirement
}

/// Whether a selector matches what has these labels; an absent one matches everything.
pub(crate) fn matches<'l>(selector: Option<&LabelSelector>, label: impl Fn(&str) -> Option<&'l str>) -> bool {
    selector.is_none_or(|selector| selects(selector.match_labels.as_ref(), requirements(selector), label))
}

fn requirements(selector: &LabelSelector) -> impl Iterator<Item = Requirement<'_>> {
    let all = selector.match_expressions.iter().flatten();
    all.map(|one| (one.key.as_str(), one.operator.as_str(), one.values.as_deref().unwrap_or_default()))
}

/// What matches what both match; `None` where the labels that they ask for rule each other out.
pub(crate) fn both(left: &LabelSelector, right: &LabelSelector) -> Option<LabelSelector> {
    let mut labels = left.match_labels.clone().unwrap_or_default();
    for (key, value) in right.match_labels.iter().flatten() {
        if labels.insert(key.clone(), value.clone()).is_some_and(|other| other != *value) {
            return None;
        }
    }
    let mut expressions: Vec<_> =
        left.match_expressions.iter().chain(&right.match_expressions).flatten().cloned().collect();
    for expression in &mut expressions {
        // The API server keeps no empty list.
        expression.values.take_if(|values| values.is_empty());
    }
    expressions.sort_by_cached_key(|one| (one.key.clone(), one.operator.clone(), one.values.clone()));
    expressions.dedup();
    Some(LabelSelector {
        match_labels: Some(labels).filter(|labels| !labels.is_empty()),
        match_expressions: Some(expressions).filter(|expressions| !expressions.is_empty()),
    })
}

/// What an API server would not take in a selector.
pub(crate) fn mistake(selector: &LabelSelector) -> Option<String> {
    requirements(selector).find_map(|(key, operator, values)| match (operator, values.is_empty()) {
        ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => None,
        ("In" | "NotIn", true) => Some(format!("operator {operator} of {key} needs values")),
        ("Exists" | "DoesNotExist", false) => Some(format!("operator {operator} of {key} takes no values")),
        _ => Some(format!("operator {operator} of {key} is none of In, NotIn, Exists and DoesNotExist")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn two_selectors_together_match_what_each_of_them_does() {
        let requirement = |key: &str, operator: &str| json!({ "key": key, "operator": operator });
        let left = selector(json!({ "matchLabels": { "a": "1" }, "matchExpressions": [requirement("c", "Exists")] }));
        let right = selector(json!({
            "matchLabels": { "a": "1", "b": "2" },
            "matchExpressions": [requirement("c", "Exists"), requirement("a", "Exists")],
        }));
        let merged = json!({
            "matchLabels": { "a": "1", "b": "2" },
            "matchExpressions": [requirement("a", "Exists"), requirement("c", "Exists")],
        });
        assert_eq!(both(&left, &right), Some(selector(merged)));
        assert_eq!(both(&left, &right), both(&right, &left));
        assert_eq!(both(&left, &selector(json!({ "matchLabels": { "a": "2" } }))), None);
        let all = LabelSelector::default();
        assert_eq!(both(&all, &all), Some(all));
    }

    #[test]
    fn what_an_api_server_would_refuse_is_a_mistake() {
        let of = |operator: &str, values: &[&str]| {
            let expression = json!({ "key": "a", "operator": operator, "values": values });
            mistake(&selector(json!({ "matchExpressions": [expression] }))).is_some()
        };
        let asked = [of("In", &["1"]), of("Exists", &[]), of("In", &[]), of("Exists", &["1"]), of("Gt", &["1"])];
        assert_eq!(asked, [false, false, true, true, true]);
    }
}
