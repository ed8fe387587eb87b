use super::*;
use crate::data::ClassDataset;
use crate::data::image_files::image;
use crate::random::{Purpose, Stream};

/// Few characters to train on, all to test on.
fn short(seed: u64) -> GlyphsConfig {
    GlyphsConfig { train_alphabets: 1, validation_alphabets: 1, ..GlyphsConfig::new(seed) }
}

fn all_pixels(set: &ImageSet) -> Vec<u8> {
    let images =
        |class| (0..set.examples(class)).flat_map(move |example| image(set, class, example));
    (0..set.classes()).flat_map(images).collect()
}

/// FNV-1a, to keep the bytes of a whole set in one number.
fn digest(set: &ImageSet) -> u64 {
    all_pixels(set).iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn a_seed_gives_the_same_bytes_for_ever() {
    assert_eq!(digest(&Glyphs::generate(&short(0)).test), 15_495_075_738_511_079_603);
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let config = GlyphsConfig { test_alphabets: 1, ..short(3) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let alone = pool.install(|| Glyphs::generate(&config));
    assert_eq!(digest(&alone.test), digest(&Glyphs::generate(&config).test));
}

#[test]
fn another_seed_gives_other_characters() {
    let config = |seed| GlyphsConfig { test_alphabets: 1, ..short(seed) };
    let [one, two] = [1, 2].map(|seed| digest(&Glyphs::generate(&config(seed)).test));
    assert_ne!(one, two);
}

#[test]
fn fewer_alphabets_characters_and_drawers_are_the_first_of_more() {
    let many = Glyphs::generate(&GlyphsConfig { test_alphabets: 2, ..short(5) });
    let few = GlyphsConfig { test_alphabets: 1, characters: 7, drawers: 3, ..short(5) };
    let few = Glyphs::generate(&few);
    for class in 0..7 {
        assert_eq!(few.test.class_name(class), many.test.class_name(class));
        for drawer in 0..3 {
            assert_eq!(image(&few.test, class, drawer), image(&many.test, class, drawer));
        }
    }
}

#[test]
fn the_three_sets_share_no_alphabet() {
    let config = GlyphsConfig { train_alphabets: 2, test_alphabets: 3, ..short(0) };
    let splits = Glyphs::generate(&config);
    assert_eq!(splits.classes(), [40, 20, 60]);
    assert_eq!(splits.test.class_name(59), "test02/character19");
    let mut drawn = std::collections::HashSet::new();
    for set in [&splits.train, &splits.validation, &splits.test] {
        for class in 0..set.classes() {
            assert_eq!(set.examples(class), 20);
            for example in 0..20 {
                assert!(drawn.insert(image(set, class, example)), "{}", set.class_name(class));
            }
        }
    }
}

#[test]
fn without_variation_all_drawers_draw_alike() {
    let config = GlyphsConfig { variation: 0.0, test_alphabets: 1, ..short(0) };
    let set = Glyphs::generate(&config).test;
    for drawer in 1..20 {
        assert_eq!(image(&set, 0, drawer), image(&set, 0, 0));
    }
    assert_ne!(image(&set, 1, 0), image(&set, 0, 0));
}

#[test]
fn ink_is_bright_and_the_page_mostly_black() {
    let pixels = all_pixels(&Glyphs::generate(&short(0)).test);
    let black = pixels.iter().filter(|&&pixel| pixel == 0).count() as f64 / pixels.len() as f64;
    let bright = pixels.iter().filter(|&&pixel| pixel == 255).count() as f64 / pixels.len() as f64;
    assert!((0.6..0.95).contains(&black), "{black}");
    assert!((0.02..0.3).contains(&bright), "{bright}");
}

/// Of five test characters, each seen once, whether the nearest image is of the right one.
fn nearest_neighbour_accuracy(set: &ImageSet, episodes: u64) -> f64 {
    let (ways, queries) = (5, 5);
    let distance = |a: &[u8], b: &[u8]| -> u64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(&a, &b)| u64::from(a.abs_diff(b)) * u64::from(a.abs_diff(b))).sum()
    };
    let mut right = 0;
    for episode in 0..episodes {
        // A key of its own, far from those of the alphabets.
        let mut stream = Stream::new(17, Purpose::SplitClasses, [1, episode]);
        let classes = &stream.permutation(set.classes())[..ways];
        let drawn: Vec<Vec<Vec<u8>>> = classes
            .iter()
            .map(|&class| {
                let order = stream.permutation(set.examples(class));
                order[..=queries].iter().map(|&example| image(set, class, example)).collect()
            })
            .collect();
        for (label, images) in drawn.iter().enumerate() {
            for query in &images[1..] {
                let nearest = (0..ways).min_by_key(|&way| distance(query, &drawn[way][0]));
                right += u64::from(nearest == Some(label));
            }
        }
    }
    right as f64 / (episodes * (ways * queries) as u64) as f64
}

#[test]
fn raw_pixels_do_not_tell_the_test_characters_apart() {
    let accuracy = nearest_neighbour_accuracy(&Glyphs::generate(&short(0)).test, 400);
    assert!((0.35..0.75).contains(&accuracy), "{accuracy}");
}

#[test]
#[should_panic(expected = "glyphs cannot vary by NaN")]
fn a_variation_that_is_no_number_panics() {
    Glyphs::generate(&GlyphsConfig { variation: f64::NAN, ..GlyphsConfig::default() });
}

#[test]
#[should_panic(expected = "every count of glyphs must be at least 1")]
fn a_count_of_nothing_panics() {
    Glyphs::generate(&GlyphsConfig { drawers: 0, ..GlyphsConfig::default() });
}
