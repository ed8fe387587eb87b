//! Files of `src/` import each other in small circles only, and `backends.rs` is above all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module, from the crate's root.
type Module = Vec<String>;

/// The imports of each module, tests left out.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| sources(folder));
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    rust.chain(below).collect()
}

fn module(source: &Path) -> Module {
    let names = source.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| !["mod", "lib"].contains(&name.as_str())).collect()
}

/// The paths of a tree of imports, `a::{b, c::d}`, without white space.
fn paths(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let (mut depth, mut start, mut all) = (0, 0, Vec::new());
    let end = rest.rfind('}').unwrap_or(rest.len());
    for (place, letter) in rest[..end].char_indices().chain([(end, ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                all.extend(paths(&format!("{prefix}{}", &rest[start..place])));
                start = place + 1;
            }
            _ => {}
        }
    }
    all
}

/// The module of a path in the source of `own`, if the path begins at the crate or above `own`.
fn resolved(path: &str, own: &Module, all: &Imports) -> Option<Module> {
    let mut module = match path.split("::").next()? {
        "crate" => Module::new(),
        "super" => own.clone(),
        _ => return None,
    };
    for name in path.split("::") {
        match name {
            "crate" => {}
            "super" => _ = module.pop(),
            name => {
                module.push(name.to_owned());
                if !all.contains_key(&module) {
                    module.pop();
                    break;
                }
            }
        }
    }
    (module != *own && !module.is_empty()).then_some(module)
}

/// A tree of imports without spaces, and without the names that it gives.
fn without_new_names(tree: &str) -> String {
    let mut words = tree.split_whitespace();
    let mut compact = String::new();
    while let Some(word) = words.next() {
        match word {
            // The name, but not the comma or bracket after it.
            "as" => compact.extend(
                words
                    .next()
                    .into_iter()
                    .flat_map(str::chars)
                    .filter(|letter| ",{}".contains(*letter)),
            ),
            word => compact.push_str(word),
        }
    }
    compact
}

/// The paths that a source names, in imports and elsewhere.
fn named(text: &str) -> Vec<String> {
    let code = text.lines().take_while(|line| *line != "mod tests {");
    let code: Vec<_> = code.filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let statements = code.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let imports = statements.flat_map(|tree| paths(&without_new_names(tree)));
    let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = code.split(|letter| !is_path(letter)).map(str::to_owned);
    imports.chain(words.filter(|word| word.contains("::"))).collect()
}

fn imports() -> Imports {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let texts: BTreeMap<Module, String> = sources(&src)
        .into_iter()
        .map(|path| (module(path.strip_prefix(&src).unwrap()), fs::read_to_string(&path).unwrap()))
        .filter(|(module, _)| !module.iter().any(|name| name == "tests"))
        .collect();
    let all: Imports = texts.keys().map(|module| (module.clone(), BTreeSet::new())).collect();
    let each = texts.iter().map(|(own, text)| {
        let others = named(text).into_iter().filter_map(|path| resolved(&path, own, &all));
        (own.clone(), others.collect())
    });
    each.collect()
}

fn reachable(from: &Module, imports: &Imports) -> BTreeSet<Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for other in &imports[module] {
            if reached.insert(other.clone()) {
                open.push(other);
            }
        }
    }
    reached
}

#[test]
fn circles_are_of_four_files_at_most() {
    let imports = imports();
    let reached: BTreeMap<_, _> =
        imports.keys().map(|module| (module, reachable(module, &imports))).collect();
    for (module, others) in &reached {
        let circle: Vec<_> =
            others.iter().filter(|other| reached[other].contains(*module)).collect();
        assert!(circle.len() <= 4, "a circle of {}: {circle:?}", circle.len());
    }
    let count: usize = imports.values().map(BTreeSet::len).sum();
    assert!(count > 300, "only {count} imports were found");
}

#[test]
fn only_the_root_imports_the_backends() {
    let imports = imports();
    let backends = vec!["backends".to_owned()];
    assert!(imports[&backends].len() > 10, "it names the operations");
    for (module, others) in imports {
        assert!(module.is_empty() || !others.contains(&backends), "{module:?}");
    }
}

#[test]
fn the_table_knows_no_operation() {
    let imports = imports();
    let below = ["environment", "fallback"];
    for other in &imports[&vec!["registry".to_owned()]] {
        assert!(below.contains(&&*other.join("::")), "it imports {other:?}");
    }
}

#[test]
fn a_tree_of_imports_is_its_paths() {
    assert_eq!(paths("a::{b,c::{d,e}}"), ["a::b", "a::c::d", "a::c::e"]);
    assert_eq!(paths("a::b"), ["a::b"]);
    assert_eq!(without_new_names("a::{b as c, d as\n e}"), "a::{b,d}");
}
