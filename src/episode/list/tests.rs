use std::path::PathBuf;

use super::*;
use crate::data::{ImageSet, ImageShape, QuarterTurn, Rotations};
use crate::episode::EpisodeSampler;

/// Classes of four pictures in files, two of which have one name in the second class.
struct Pictures;

const FILES: [[&str; 4]; 3] = [
    ["0a.png", "b, c.png", "d.png", "7"],
    ["a.png", "b.png", "a.png", "c.png"],
    ["x.png", "y.png", "z.png", "\"w\".png"],
];

impl ClassSet for Pictures {
    fn classes(&self) -> usize {
        3
    }

    fn class_name(&self, class: usize) -> String {
        ["owl", "snowy owl", "fox, red"][class].to_owned()
    }

    fn examples(&self, class: usize) -> usize {
        FILES[class].len()
    }

    fn example_name(&self, class: usize, example: usize) -> Option<&str> {
        Some(FILES[class][example])
    }

    fn draws_turns(&self) -> bool {
        false
    }
}

fn draw(class: usize, support: &[usize], query: &[usize]) -> ClassDraw {
    ClassDraw { class, turn: QuarterTurn::R0, support: support.to_vec(), query: query.to_vec() }
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn read(name: &str, text: &str) -> Result<EpisodeList, String> {
    let (_folder, path) = file(name, text);
    EpisodeList::read_of(&path, &Pictures).map_err(|error| {
        let text = error.to_string();
        text.split_once(&format!("{name}: ")).map_or(text.clone(), |(_, reason)| reason.to_owned())
    })
}

fn images(rotations: Rotations) -> ImageSet {
    let classes = (0..7).map(|class| (format!("class {class}"), 12));
    let set = ImageSet::new(ImageShape::new(1, 1, 1), vec![0; 84], classes).unwrap();
    set.with_rotations(rotations).unwrap()
}

#[test]
fn what_is_written_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    for rotations in [Rotations::None, Rotations::AsClasses, Rotations::PerClassAndEpisode] {
        let set = images(rotations);
        let fixed = EpisodeSampler::new(set.clone(), Protocol::new(3, 2).with_queries(4), 5);
        let varied = EpisodeSampler::varied(set.clone(), 5);
        for (sampler, equal) in [(fixed.unwrap(), true), (varied.unwrap(), false)] {
            let list = EpisodeList::draw(&sampler, 30).unwrap();
            assert_eq!(list.sizes() == sampler.sizes(), equal);
            assert_eq!(list.batch_sizes().is_some(), equal);
            for name in ["list.jsonl", "list.csv"] {
                let path = folder.path().join(name);
                list.write(&path, &set).unwrap();
                let again = EpisodeList::read(&path, &set).unwrap();
                assert_eq!(again, list);
                let listed = EpisodeSampler::listed(set.clone(), again).unwrap();
                assert!((0..30).all(|index| listed.episode(index) == sampler.episode(index)));
            }
        }
    }
}

#[test]
fn pictures_have_names_or_numbers() {
    let line = r#"{"classes": [{"class": "owl", "support": ["b, c.png", 2], "queries": ["0a.png"]},
        {"class": "snowy owl", "support": [2, "0"], "query": []}], "note": 1}"#;
    let expected = [Episode { classes: vec![draw(0, &[1, 2], &[0]), draw(1, &[2, 0], &[])] }];
    let text = format!("\n{}\r\n\n", line.replace('\n', ""));
    assert_eq!(read("list.jsonl", &text).unwrap().episodes(), expected);
    let rows = "part,note,picture,class,episode\nquery,,0a.png,owl,one\n\
                support,?,\"b, c.png\",owl,one\nsupport,,2,owl,one\n\
                support,,2,snowy owl,one\nsupport,,0,snowy owl,one\n";
    assert_eq!(read("list.csv", rows).unwrap().episodes(), expected);
}

/// A class and pictures whose names begin or end with a space.
struct Spaced;

const SPACED: [&str; 4] = [" a.png", "a.png", "b.png ", " 1"];

impl ClassSet for Spaced {
    fn classes(&self) -> usize {
        2
    }

    fn class_name(&self, class: usize) -> String {
        ["owl ", "owl"][class].to_owned()
    }

    fn examples(&self, _: usize) -> usize {
        SPACED.len()
    }

    fn example_name(&self, _: usize, example: usize) -> Option<&str> {
        Some(SPACED[example])
    }

    fn draws_turns(&self) -> bool {
        false
    }
}

#[test]
fn names_keep_their_spaces_and_rows_may_have_more() {
    let classes = vec![draw(0, &[0, 1], &[2, 3]), draw(1, &[3], &[0])];
    let list = EpisodeList::new(vec![Episode { classes }]).unwrap();
    for name in ["list.csv", "list.jsonl"] {
        let names = &mut Names::new(&Spaced);
        let text = match name {
            "list.csv" => csv_rows::write(list.episodes(), names),
            _ => json_lines::write(list.episodes(), names),
        };
        let (_folder, path) = file(name, &String::from_utf8(text).unwrap());
        assert_eq!(EpisodeList::read_of(&path, &Spaced).unwrap(), list, "{name}");
    }
    let rows = "episode, class, picture, part\n 0, snowy owl, c.png, support \n0 ,owl , 1 , query\n\
                0,owl, 0a.png,support\n";
    let expected = [Episode { classes: vec![draw(1, &[3], &[]), draw(0, &[0], &[1])] }];
    assert_eq!(read("list.csv", rows).unwrap().episodes(), expected);
}

#[test]
fn a_name_is_written_where_it_says_which_picture() {
    let classes = vec![draw(0, &[0, 3], &[1]), draw(1, &[0, 1], &[2]), draw(2, &[3], &[0, 2])];
    let list = EpisodeList::new(vec![Episode { classes }]).unwrap();
    let names = &mut Names::new(&Pictures);
    let json = String::from_utf8(json_lines::write(list.episodes(), names)).unwrap();
    assert_eq!(
        json,
        "{\"classes\":[{\"class\":\"owl\",\"support\":[\"0a.png\",3],\"queries\":[\"b, c.png\"]},\
         {\"class\":\"snowy owl\",\"support\":[0,\"b.png\"],\"queries\":[2]},\
         {\"class\":\"fox, red\",\"support\":[\"\\\"w\\\".png\"],\"queries\":[\"x.png\",\"z.png\"]}]}\n"
    );
    assert_eq!(read("list.jsonl", &json).unwrap(), list);
    let rows = String::from_utf8(csv_rows::write(list.episodes(), names)).unwrap();
    assert!(
        rows.starts_with("episode,class,picture,part\n0,owl,0a.png,support\n0,owl,3,support\n")
    );
    assert_eq!(read("list.csv", &rows).unwrap(), list);
}

#[test]
fn episodes_of_rows_are_in_the_order_of_their_first() {
    let rows = "episode,class,picture,part\nb,owl,0,support\na,snowy owl,1,support\n\
                b,owl,1,query\na,owl,2,support\na,owl,3,query\n";
    let episodes = read("list.csv", rows).unwrap();
    let expected = [
        Episode { classes: vec![draw(0, &[0], &[1])] },
        Episode { classes: vec![draw(1, &[1], &[]), draw(0, &[2], &[3])] },
    ];
    assert_eq!(episodes.episodes(), expected);
    assert_eq!((episodes.sizes(), episodes.first_without(2)), (EpisodeSizes::Listed, Some(0)));
    assert_eq!(episodes.largest(), Protocol::new(2, 1).with_queries(1));
}

#[test]
fn a_line_of_nonsense_is_named() {
    let good = r#"{"classes": [{"class": "owl", "support": [0], "queries": [1]}]}"#;
    let of = |classes: &str| {
        read("list.jsonl", &format!("{good}\n\n{{\"classes\": [{classes}]}}\n")).unwrap_err()
    };
    let class = |name: &str, support: &str, queries: &str| {
        format!(r#"{{"class": "{name}", "support": [{support}], "queries": [{queries}]}}"#)
    };
    for (classes, reason) in [
        (class("cat", "0", "1"), "there is no class \"cat\" among 3"),
        (class("owl", "\"e.png\"", "1"), "class \"owl\" has no picture \"e.png\""),
        (class("owl", "0", "4"), "class \"owl\" has pictures 0 to 3, and no 4"),
        (class("owl", "0", "1, 0"), "picture \"0a.png\" of class \"owl\" is twice in the episode"),
        (
            class("owl", "0, \"0a.png\"", "1"),
            "picture \"0a.png\" of class \"owl\" is twice in the episode",
        ),
        (
            class("snowy owl", "\"a.png\"", "1"),
            "class \"snowy owl\" has several pictures \"a.png\": give numbers",
        ),
        (class("owl", "", "1"), "class \"owl\" has no support"),
        (class("owl", "0", ""), "the episode has no query"),
        (String::new(), "the episode has no query"),
        (
            format!("{}, {}", class("owl", "0", "1"), class("owl", "2", "3")),
            "class \"owl\" is twice in the episode",
        ),
        (
            class("owl", "0", "1").replace("}", r#", "turn": 90}"#),
            "class \"owl\" is not shown in turns by this dataset",
        ),
        (
            class("owl", "0", "1").replace("}", r#", "turn": 45}"#),
            "a turn has 0, 90, 180 or 270 degrees, not 45",
        ),
    ] {
        assert_eq!(of(&classes), format!("line 3: {reason}"));
    }
    let broken = read("list.jsonl", "{\"classes\": [}\n").unwrap_err();
    assert!(broken.starts_with("line 1: no episode, at column 14: "), "{broken}");
    assert_eq!(broken.lines().count(), 1);
    let missing = read("list.jsonl", "{\"ways\": 5}\n").unwrap_err();
    assert!(missing.contains("missing field `classes`"), "{missing}");
    let negative = of(&class("owl", "-1", "1"));
    assert!(negative.starts_with("line 3: no episode"), "{negative}");
}

#[test]
fn a_row_of_nonsense_is_named() {
    let head = "episode,class,picture,part\n0,owl,0,support\n";
    let of = |rows: &str| read("list.csv", &format!("{head}{rows}")).unwrap_err();
    assert_eq!(of("0,cat,1,query\n"), "line 3: there is no class \"cat\" among 3");
    assert_eq!(of("0,owl,1,both\n"), "line 3: a part is support or query, not \"both\"");
    let twice = "line 3: picture \"0a.png\" of class \"owl\" is twice in the episode";
    assert_eq!(of("0,owl,0a.png,query\n"), twice);
    assert_eq!(of("0,snowy owl,0,query\n"), "line 2: class \"snowy owl\" has no support");
    assert_eq!(of("1,owl,0,support\n1,owl,1,query\n"), "line 2: the episode has no query");
    assert!(of("0,owl\n").starts_with("line 3: "));
    let column = read("list.csv", "episode,class,part\n").unwrap_err();
    assert_eq!(column, "line 1: there is no column picture: episode,class,part".replace(",", ", "));
    let turn = "episode,class,picture,part,turn\n0,owl,0,support,left\n";
    assert_eq!(
        read("list.csv", turn).unwrap_err(),
        "line 2: a turn is a number of degrees, not \"left\""
    );
}

#[test]
fn a_file_without_episodes_or_of_another_kind_is_refused() {
    for name in ["list.jsonl", "list.csv"] {
        let text = if name == "list.csv" { "episode,class,picture,part\n" } else { "\n" };
        assert_eq!(read(name, text).unwrap_err(), "there is no episode in it");
    }
    assert_eq!(read("list.txt", "").unwrap_err(), "a list of episodes ends in .jsonl or .csv");
    let absent = EpisodeList::read_of(Path::new("nowhere.csv"), &Pictures).unwrap_err();
    assert!(absent.to_string().starts_with("nowhere.csv: cannot be read: "), "{absent}");
    assert!(EpisodeList::new(Vec::new()).is_err());
}

#[test]
fn a_dataset_without_the_examples_is_refused() {
    let set = images(Rotations::None);
    for (classes, reason) in [
        (vec![draw(7, &[0], &[1])], "there is no class 7 among 7"),
        (vec![draw(0, &[0], &[12])], "class \"class 0\" has pictures 0 to 11, and no 12"),
        (vec![draw(0, &[0], &[0])], "picture 0 of class \"class 0\" is twice in the episode"),
        (
            vec![draw(0, &[0], &[1]), draw(0, &[2], &[3])],
            "class \"class 0\" is twice in the episode",
        ),
    ] {
        let good = Episode { classes: vec![draw(0, &[0], &[1])] };
        let list = EpisodeList::new(vec![good, Episode { classes }]).unwrap();
        let error = EpisodeSampler::listed(set.clone(), list).unwrap_err();
        assert_eq!(error, EpisodeError::Episode { index: 1, reason: reason.to_owned() });
    }
}
