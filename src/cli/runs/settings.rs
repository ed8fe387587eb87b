use serde_json::Value;

/// All settings that are not null, with dotted names.
pub(super) fn flattened(settings: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    push("", settings, &mut found);
    found
}

fn push<'a>(name: &str, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                push(&format!("{name}{dot}{field}"), value, found);
            }
        }
        value => found.push((name.to_owned(), value)),
    }
}

pub(super) fn text(setting: &Value) -> String {
    match setting {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_dotted_names_and_none_is_null() {
        let settings = json!({"a": {"b": 0.5, "c": null, "d": {"e": "f"}}, "g": [1, 2]});
        let found = flattened(&settings).into_iter().map(|(name, value)| (name, text(value)));
        let expected = [("a.b", "0.5"), ("a.d.e", "f"), ("g", "[1,2]")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
