//! The difference between settings, as JSON values.

use serde_json::{Map, Value};

/// The first setting that differs: its name, and both values. `name` is the path of the object that holds the settings.
pub(crate) fn difference(
    name: &str,
    first: &Value,
    second: &Value,
) -> Option<(String, String, String)> {
    match (first, second) {
        (Value::Object(first), Value::Object(second)) => {
            let names = first.keys().chain(second.keys());
            names.into_iter().find_map(|key| {
                let of =
                    |object: &Map<String, Value>| object.get(key).cloned().unwrap_or(Value::Null);
                let path = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                difference(&path, &of(first), &of(second))
            })
        }
        _ if first == second => None,
        _ => Some((name.to_owned(), first.to_string(), second.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_setting_that_differs_is_named() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}});
        let new = json!({"a": 1, "b": {"c": 2, "d": 4}});
        assert_eq!(difference("", &old, &old), None);
        let expected = Some(("b.d".to_owned(), "3".to_owned(), "4".to_owned()));
        assert_eq!(difference("", &old, &new), expected);
        let absent = Some(("a".to_owned(), "1".to_owned(), "null".to_owned()));
        assert_eq!(difference("", &old, &json!({"b": {"c": 2, "d": 3}})), absent);
    }
}
