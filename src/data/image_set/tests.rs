use super::*;

/// Classes `a` (2 images) and `b` (1 image) of 3 channels, each value its own number.
fn colored() -> ImageSet {
    let classes = [("a".into(), 2), ("b".into(), 1)];
    ImageSet::new(ImageShape::new(3, 2, 2), (0..36).collect::<Vec<u8>>(), classes).unwrap()
}

fn image(set: &ImageSet, class: usize, example: usize, turn: QuarterTurn) -> Vec<u8> {
    let mut out = vec![0; set.image_shape().values()];
    set.write_image(class, example, turn, &mut out).unwrap();
    out
}

#[test]
fn images_lie_one_after_another_class_after_class() {
    let set = colored();
    assert_eq!((set.classes(), set.examples(0), set.examples(1)), (2, 2, 1));
    assert_eq!((set.images(), set.pixels.bytes()), (3, 36));
    assert_eq!(image(&set, 0, 1, QuarterTurn::R0), (12..24).collect::<Vec<_>>());
    assert_eq!(image(&set, 1, 0, QuarterTurn::R0), (24..36).collect::<Vec<_>>());
}

#[test]
fn channels_are_turned_one_by_one() {
    let turned = image(&colored(), 0, 0, QuarterTurn::R90);
    assert_eq!(turned, [1, 3, 0, 2, 5, 7, 4, 6, 9, 11, 8, 10]);
}

#[test]
fn the_turn_of_a_class_comes_before_the_turn_asked_for() {
    let turned = colored().with_rotations(Rotations::AsClasses).unwrap();
    assert_eq!(turned.classes(), 8);
    for class in 0..2 {
        for (k, own) in QuarterTurn::ALL.into_iter().enumerate() {
            let name = format!("{}/{own}", colored().class_name(class));
            assert_eq!(turned.class_name(4 * class + k), name);
            for asked in QuarterTurn::ALL {
                let expected = image(&colored(), class, 0, own.then(asked));
                assert_eq!(image(&turned, 4 * class + k, 0, asked), expected);
            }
        }
    }
}

#[test]
fn a_view_shares_the_pixels() {
    let set = colored();
    let view = set.select(&[1, 0]).with_rotations(Rotations::PerClassAndEpisode).unwrap();
    assert!(Arc::ptr_eq(&set.pixels, &view.pixels));
    assert!(view.draws_turns() && !set.draws_turns());
    assert_eq!(view.class_name(0), "b");
    assert_eq!(image(&view, 1, 1, QuarterTurn::R0), image(&set, 0, 1, QuarterTurn::R0));
}

#[test]
fn turns_that_are_classes_are_not_drawn_besides() {
    let drawn = colored().with_rotations(Rotations::PerClassAndEpisode).unwrap();
    for rotations in [Rotations::AsClasses, Rotations::None] {
        assert!(!drawn.clone().with_rotations(rotations).unwrap().draws_turns());
    }
}

#[test]
fn turns_want_square_images() {
    let wide = ImageSet::new(ImageShape::new(1, 1, 2), vec![0; 2], [("a".into(), 1)]).unwrap();
    assert!(wide.clone().with_rotations(Rotations::None).is_ok());
    for rotations in [Rotations::AsClasses, Rotations::PerClassAndEpisode] {
        let error = wide.clone().with_rotations(rotations).unwrap_err();
        assert_eq!(error.to_string(), "only square images can be rotated, these are 1x1x2");
    }
}

#[test]
fn a_set_wants_as_many_pixels_as_its_images_have() {
    let shape = ImageShape::new(1, 2, 2);
    let error = ImageSet::new(shape, vec![0; 7], [("a".into(), 2)]).unwrap_err();
    assert_eq!(error.to_string(), "2 images of 1x2x2 are 8 bytes, there are 7");
    let error = ImageSet::new(shape, vec![0; 4], [("a".into(), 1), ("b".into(), 0)]).unwrap_err();
    assert_eq!(error.to_string(), "class b has no image");
    let error = ImageSet::new(ImageShape::new(1, 0, 2), vec![], []).unwrap_err();
    assert_eq!(error.to_string(), "images of 1x0x2 hold nothing: every number must be at least 1");
}

#[test]
#[should_panic(expected = "class 2 of a set of 2 classes")]
fn a_class_out_of_range_panics() {
    colored().select(&[2]);
}
