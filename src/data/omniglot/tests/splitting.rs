use super::*;

#[test]
fn the_vinyals_split_follows_the_lists() {
    let dir = packed();
    let train = "Greek/character01/rot000\nGreek/character01/rot090\r\n\n";
    let lists = [
        ("train.txt", train),
        ("val.txt", "Greek/character01/rot180"),
        ("test.txt", "Tibetan/character07/rot270"),
    ];
    write_lists(&dir, lists);
    let omniglot = Omniglot::open(&dir).unwrap();
    let splits = omniglot.split(Split::Vinyals).unwrap();
    assert_eq!(splits.classes(), [2, 1, 1]);
    assert_eq!(splits.train.class_name(1), "Greek/character01/rot090");
    assert_eq!(splits.train.examples(1), 2);
    assert!(!splits.train.draws_turns());
    // A quarter turn to the left takes the upper left corner to the lower left one.
    assert_eq!(image(&splits.train, 1, 0)[27 * 28], 255);
    assert_eq!(image(&splits.test, 0, 0)[27], 255);
    let [block, of_test] = [omniglot.characters(), &splits.test].map(|set| set.block().unwrap());
    assert!(std::sync::Arc::ptr_eq(of_test, block));
}

#[test]
fn an_absent_list_is_named_with_its_origin() {
    let omniglot_dir = packed();
    let error = Omniglot::open(&omniglot_dir).unwrap().split(Split::Vinyals).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("splits/vinyals/train.txt: "), "{text}");
    assert!(text.contains("github.com/jakesnell/prototypical-networks"), "{text}");
    assert!(text.contains("data/omniglot/splits/vinyals"), "{text}");
}

#[test]
fn a_wrong_line_of_a_list_is_named() {
    let dir = packed();
    let omniglot = Omniglot::open(&dir).unwrap();
    let good = "Greek/character01/rot000";
    for (line, reason) in [
        ("Greek/character01", "is not of the form Alphabet/characterNN/rotDDD"),
        ("Greek/character01/rotten", "is not of the form Alphabet/characterNN/rotDDD"),
        ("Greek/character01/rot045", "is not turned by 0, 90, 180 or 270"),
        ("Greek/character02/rot000", "is a character that the images do not have"),
    ] {
        let test = format!("{good}\n{line}");
        write_lists(&dir, [("train.txt", good), ("val.txt", good), ("test.txt", &test)]);
        let text = omniglot.split(Split::Vinyals).unwrap_err().to_string();
        assert!(text.ends_with(&format!("test.txt: line 2: {line:?} {reason}")), "{text}");
    }
    write_lists(&dir, [("train.txt", "\n"), ("val.txt", good), ("test.txt", good)]);
    let text = omniglot.split(Split::Vinyals).unwrap_err().to_string();
    assert!(text.ends_with("train.txt: it is empty"), "{text}");
}

#[test]
fn the_finn_split_shuffles_all_characters_by_the_seed() {
    let classes = (0..1623).map(|number| (number.to_string(), 1));
    let set = ImageSet::new(ImageShape::new(1, 1, 1), vec![0; 1623], classes).unwrap();
    let omniglot = Omniglot { dir: PathBuf::new(), characters: set };
    let order = |seed| {
        let splits = omniglot.split(Split::Finn { seed }).unwrap();
        assert_eq!(splits.classes(), [1100, 100, 423]);
        let sets = [splits.train, splits.validation, splits.test];
        assert!(sets.iter().all(ClassDataset::draws_turns));
        let names =
            |set: &ImageSet| (0..set.classes()).map(|c| set.class_name(c)).collect::<Vec<_>>();
        sets.iter().flat_map(names).collect::<Vec<_>>()
    };
    let one = order(1);
    assert_eq!(one, order(1));
    assert_ne!(one, order(2));
    let distinct: std::collections::HashSet<_> = one.iter().collect();
    assert_eq!(distinct.len(), 1623);
}

#[test]
fn the_finn_split_wants_every_character() {
    let omniglot = Omniglot::open(packed()).unwrap();
    let error = omniglot.split(Split::Finn { seed: 1 }).unwrap_err();
    assert_eq!(error.to_string(), "the Finn split needs 1623 classes, there are 2");
}

#[test]
fn a_split_is_written_as_it_is_read() {
    for split in [Split::Vinyals, Split::Finn { seed: 1 }, Split::Finn { seed: 99 }] {
        assert_eq!(split.to_string().parse::<Split>().unwrap(), split);
    }
    assert_eq!("finn".parse::<Split>().unwrap(), Split::Finn { seed: 1 });
    for text in ["lake", "finn:", "finn:x", "Vinyals"] {
        let error = text.parse::<Split>().unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{text:?} is no Omniglot split: there are vinyals, finn and finn:SEED")
        );
    }
}
