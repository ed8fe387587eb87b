use std::fmt::Write;

use fewshot::train::FeatureEvaluation;

/// A table for each number of shots.
pub(super) fn text(tables: &[Vec<FeatureEvaluation>]) -> String {
    let all = || tables.iter().flatten();
    let width = all().map(|evaluation| label(evaluation).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for rows in tables {
        let Some(first) = rows.first() else { continue };
        let _ = writeln!(text, "{}", title(first));
        for evaluation in rows {
            let (label, FeatureEvaluation { accuracy, ci95, .. }) = (label(evaluation), evaluation);
            let _ = writeln!(text, "  {label:width$}  {accuracy:6.2} ± {ci95:.2} %");
        }
        text.push('\n');
    }
    if all().any(|evaluation| evaluation.transductive) {
        text.push_str("* sees all queries of an episode together");
    }
    text.trim_end().to_owned()
}

/// The protocol that all rows of a table have in common.
pub(super) fn title(evaluation: &FeatureEvaluation) -> String {
    let spread = match evaluation.unbalanced {
        Some(alpha) => format!(", unbalanced with alpha {alpha}"),
        None => String::new(),
    };
    format!("{}, {} episodes{spread}", evaluation.sizes, evaluation.episodes)
}

/// A method, with a mark if it is transductive.
pub(super) fn label(evaluation: &FeatureEvaluation) -> String {
    let mark = if evaluation.transductive { " *" } else { "" };
    format!("{}{mark}", evaluation.method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::test::example;

    #[test]
    fn a_table_has_a_mark_where_all_queries_are_seen() {
        let rows =
            vec![example("pt-map", true, 76.1, 0.25), example("simpleshot", false, 63.6, 0.2)];
        let expected = "\
5-way 1-shot 15-query, 100 episodes
  pt-map *     76.10 ± 0.25 %
  simpleshot   63.60 ± 0.20 %

* sees all queries of an episode together";
        assert_eq!(text(&[rows]), expected);
    }
}
