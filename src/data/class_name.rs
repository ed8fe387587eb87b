use unicode_normalization::UnicodeNormalization;

use crate::data::{DataError, Result};

/// Bytes of a class's name, at most: of a file's name that all systems take.
const LONGEST: usize = 255;

/// A plain name for a class in Unicode's composed form (NFC), in which one name has one spelling.
///
/// macOS spells the names of folders in decomposed form: `é` as `e` and an accent.
///
/// # Errors
/// For a name that is empty, `.` or `..`, begins or ends with white space, is longer than 255 bytes, or has a `/`, a
/// `\`, or a character that nobody sees: control characters, marks of byte order and of direction, spaces without
/// width. Joiners without width are taken where Persian, Hindi or an emoji needs them: between two characters that are
/// not ASCII.
pub fn class_name(text: &str) -> Result<String> {
    let name: String = text.nfc().collect();
    match fault(&name) {
        Some(reason) => Err(DataError::ClassName { name, reason }),
        None => Ok(name),
    }
}

fn fault(name: &str) -> Option<&'static str> {
    let faults = [
        (name.is_empty(), "it is empty"),
        (name == "." || name == "..", "it is a place among folders"),
        (name.contains(['/', '\\']), "it has a / or \\"),
        (name.trim() != name, "it begins or ends with white space"),
        (name.len() > LONGEST, "it is longer than 255 bytes"),
        (name.contains('\u{fffd}'), "it is not text in UTF-8"),
        (has_unseen(name), "it has a character that cannot be seen"),
    ];
    faults.into_iter().find_map(|(present, reason)| present.then_some(reason))
}

fn has_unseen(name: &str) -> bool {
    let characters: Vec<char> = name.chars().collect();
    let joins = |at: usize| {
        let neighbours = [at.checked_sub(1), Some(at + 1)];
        let neighbours = neighbours.map(|at| at.and_then(|at| characters.get(at)));
        neighbours.iter().all(|of| of.is_some_and(|of| !of.is_ascii() && !is_unseen(*of)))
    };
    characters.iter().enumerate().any(|(at, of)| is_unseen(*of) && !(is_joiner(*of) && joins(at)))
}

fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
}

/// Controls, fillers, and marks that only change what is beside them.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
        assert_ne!(composed, decomposed);
        assert_eq!(class_name(decomposed).unwrap(), composed);
        assert_eq!(class_name(composed).unwrap(), composed);
        // Korean syllables, and a unit that is a letter.
        assert_eq!(class_name("\u{1112}\u{1161}\u{11ab}").unwrap(), "\u{d55c}");
        assert_eq!(class_name("\u{212a}").unwrap(), "K");
    }

    #[test]
    fn plain_names_stay_as_they_are() {
        let longest = "x".repeat(255);
        let plain = ["cat", "%", "...", ".x", "a b", "a..b", "<b>", "\"", "猫", "0", "κ", &longest];
        // With joiners: a Persian plural and the emoji of a farmer.
        let joined = ["خانه\u{200c}ها", "👩\u{200d}🌾"];
        for name in plain.into_iter().chain(joined) {
            assert_eq!(class_name(name).unwrap(), name);
        }
    }

    #[test]
    fn what_is_no_plain_name_is_refused_with_its_reason() {
        let refused = |name: &str| class_name(name).unwrap_err().to_string();
        assert_eq!(refused(""), "no class can be called \"\": it is empty");
        assert!(refused(".").ends_with("it is a place among folders"));
        assert!(refused("..").ends_with("it is a place among folders"));
        for name in ["../../x", "a/b", "/", "a\\b"] {
            assert!(refused(name).ends_with("it has a / or \\"), "{name}");
        }
        for name in [" ", " cat", "cat ", "cat\u{a0}", "\tcat", "cat\n", "\u{3000}cat"] {
            assert!(refused(name).ends_with("begins or ends with white space"), "{name:?}");
        }
        assert!(refused(&"x".repeat(256)).ends_with("longer than 255 bytes"));
        assert!(refused(&"é".repeat(128)).ends_with("longer than 255 bytes"));
        assert!(refused("ca\u{fffd}t").ends_with("not text in UTF-8"));
        let unseen = [
            '\0', '\u{7}', '\n', '\u{7f}', '\u{85}', '\u{ad}', '\u{61c}', '\u{200b}', '\u{200c}',
            '\u{200d}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{202e}', '\u{2060}', '\u{2066}',
            '\u{2069}', '\u{3164}', '\u{feff}',
        ];
        for character in unseen {
            let text = refused(&format!("ca{character}t"));
            assert!(text.ends_with("a character that cannot be seen"), "{text}");
            assert!(class_name(&character.to_string()).is_err());
            // Between letters that a joiner may join, too.
            let joins = matches!(character, '\u{200c}' | '\u{200d}');
            assert_eq!(class_name(&format!("猫{character}犬")).is_ok(), joins, "{character:?}");
        }
        assert!(refused("\u{feff}cat").starts_with("no class can be called \"\\u{feff}cat\""));
        assert!(class_name("خ\u{200c}\u{200d}ه").is_err());
    }
}
