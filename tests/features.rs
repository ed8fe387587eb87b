//! Files of features, episodes of them, and tests on them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::backend::Flex;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot::data::{DataError, FeatureRows, Features, ImageSet, ImageShape};
use fewshot::episode::{EpisodeError, FeatureBatch, FeatureSampler, Protocol, QueryCounts};
use fewshot::learners::accuracies;
use fewshot::learners::heads::{AnyHead, EmbeddedSupport, FittedHead, Head, Prototypes};
use fewshot::train::FeatureTest;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

type B = Flex;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// As many classes, with rows around a point of their own and no two alike.
fn clusters(classes: usize, examples: usize, length: usize) -> Features {
    let mut state = 12_345u64;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let classes = (0..classes).map(|class| {
        let center: Vec<_> = (0..length).map(|_| 0.7 * noise()).collect();
        let rows = (0..examples * length).map(|at| 1.0 + center[at % length] + noise()).collect();
        (format!("class{class:03}"), rows)
    });
    Features::new(length, classes.collect::<Vec<_>>()).unwrap()
}

fn pets() -> Features {
    let classes = [
        ("dog".to_owned(), vec![0.0, 0.25, 0.5, 2.0, 2.25, 2.5, 5.0, 5.25, 5.5]),
        ("cat".to_owned(), vec![1.0, 1.25, 1.5, 4.0, 4.25, 4.5]),
        ("ant".to_owned(), vec![3.0, 3.25, 3.5]),
    ];
    Features::new(3, classes).unwrap()
}

mod files {
    use super::*;

    fn written(
        tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)],
        metadata: &[(&str, &str)],
    ) -> Vec<u8> {
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let metadata: HashMap<_, _> =
            metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        safetensors::serialize(views.collect::<Vec<_>>(), Some(metadata)).unwrap()
    }

    fn opened(bytes: &[u8]) -> Result<Features, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.safetensors");
        fs::write(&path, bytes).unwrap();
        Features::open(path)
    }

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// What is said of a file with these bytes, without its folder.
    fn complaint(bytes: &[u8]) -> String {
        let text = opened(bytes).unwrap_err().to_string();
        text[text.find("f.safetensors").unwrap()..].to_owned()
    }

    #[test]
    fn every_cut_of_a_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pets.safetensors");
        pets().write(&path).unwrap();
        let whole = fs::read(path).unwrap();
        for length in 0..whole.len() {
            assert!(opened(&whole[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(opened(&whole).unwrap(), pets());
    }

    #[test]
    fn what_is_written_reads_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pets.safetensors");
        let features = pets()
            .with_base_mean(vec![0.1, 1.0 / 3.0, -2e-30])
            .unwrap()
            .with_metadata("backbone", "conv4")
            .with_metadata("created_by", "fewshot");
        features.write(&path).unwrap();
        assert_eq!(Features::open(&path).unwrap(), features);
        features.write(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn classes_are_in_the_order_of_their_names() {
        let pets = pets();
        let names: Vec<_> = (0..3).map(|class| pets.class_name(class)).collect();
        assert_eq!(names, ["ant", "cat", "dog"]);
        assert_eq!([0, 1, 2].map(|class| pets.examples(class)), [1, 2, 3]);
        assert_eq!(pets.row(pets.rows_of(1).start), [1.0, 1.25, 1.5]);
        assert_eq!(pets.mean(), [2.5, 2.75, 3.0]);
    }

    #[test]
    fn numbers_of_every_precision_are_read() {
        let f64s: Vec<u8> = [0.1f64, -3.0].into_iter().flat_map(f64::to_le_bytes).collect();
        // 1.5 and -0.25 in both halves.
        let f16s: Vec<u8> = [0x3e00u16, 0xb400].into_iter().flat_map(u16::to_le_bytes).collect();
        let bf16s: Vec<u8> = [0x3fc0u16, 0xbe80].into_iter().flat_map(u16::to_le_bytes).collect();
        let features = opened(&written(
            &[
                ("a", Dtype::F64, vec![1, 2], f64s),
                ("b", Dtype::F16, vec![1, 2], f16s),
                ("c", Dtype::BF16, vec![1, 2], bf16s),
                ("d", Dtype::F32, vec![2, 2], f32s(&[1.0, 2.0, 3.0, 4.0])),
            ],
            &[("base_mean", "[1, 2.5]"), ("backbone", "resnet12")],
        ));
        let features = features.unwrap();
        assert_eq!(features.values(), [0.1, -3.0, 1.5, -0.25, 1.5, -0.25, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(features.base_mean(), Some(&[1.0, 2.5][..]));
        assert_eq!(features.metadata()["backbone"], "resnet12");
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        let whole = written(&[("a", Dtype::F32, vec![1, 2], f32s(&[1.0, 2.0]))], &[]);
        assert!(opened(&whole).is_ok());
        for length in 0..whole.len() {
            let said = complaint(&whole[..length]);
            assert!(said.contains("is not a whole safetensors file"), "{length}: {said}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let one = |shape: &[usize], values: &[f32]| {
            written(&[("a", Dtype::F32, shape.to_vec(), f32s(values))], &[])
        };
        let none = [&2u64.to_le_bytes()[..], b"{}"].concat();
        assert_eq!(complaint(&none), "f.safetensors: there is no class of features");
        for empty in [[0, 2], [2, 0]] {
            assert_eq!(complaint(&one(&empty, &[])), "f.safetensors: class a has no features");
        }
        assert_eq!(
            complaint(&one(&[2], &[1.0, 2.0])),
            "f.safetensors: class a is F32 [2], not F32, F64, F16 or BF16 numbers [n, d]"
        );
        let numbers = written(&[("a", Dtype::I32, vec![1, 1], vec![0; 4])], &[]);
        assert!(complaint(&numbers).contains("class a is I32 [1, 1]"));
        for value in [f32::NAN, f32::INFINITY] {
            assert_eq!(
                complaint(&one(&[2, 2], &[1.0, 2.0, value, 4.0])),
                "f.safetensors: row 1 of class a is NaN or infinite, not finite numbers"
            );
        }
        let lengths = [
            ("a", Dtype::F32, vec![1, 2], f32s(&[1.0, 2.0])),
            ("b", Dtype::F32, vec![1, 3], f32s(&[1.0, 2.0, 3.0])),
        ];
        assert_eq!(
            complaint(&written(&lengths, &[])),
            "f.safetensors: class b has 3 features in a row, not 2"
        );
    }

    #[test]
    fn a_base_mean_that_fits_no_row_is_refused() {
        let with = |mean| {
            let class = [("a", Dtype::F32, vec![1, 2], f32s(&[1.0, 2.0]))];
            complaint(&written(&class, &[("base_mean", mean)]))
        };
        assert_eq!(with("[1]"), "f.safetensors: the base mean has 1 features in a row, not 2");
        assert!(with("one").contains("base_mean is"), "{}", with("one"));
        assert!(pets().with_base_mean(vec![0.0, f32::NAN, 0.0]).is_err());
    }

    #[test]
    fn a_name_with_another_ending_is_refused() {
        let error = |path| Features::open(path).unwrap_err().to_string();
        let parquet = match cfg!(feature = "parquet") {
            true => ".parquet",
            false => "in a build with --features parquet .parquet",
        };
        for name in ["features.pickle", "features"] {
            let endings = format!("there are .safetensors, .npy, .npz, .csv, {parquet}");
            assert_eq!(
                error(name),
                format!("{name} is not named as a file of features: {endings}")
            );
        }
        assert!(error("absent.safetensors").starts_with("cannot read absent.safetensors: "));
        assert_eq!(
            pets().write("pets.parquet").unwrap_err().to_string(),
            "pets.parquet is not named as a file of features: there are .safetensors"
        );
        assert!(pets().write("no/such/folder/pets.safetensors").is_err());
    }

    #[test]
    fn classes_of_one_name_and_broken_rows_are_refused() {
        let twice = [("a".to_owned(), vec![1.0]), ("a".to_owned(), vec![2.0])];
        assert!(matches!(Features::new(1, twice), Err(DataError::TwoClasses { .. })));
        let broken = [("a".to_owned(), vec![1.0, 2.0, 3.0])];
        assert!(matches!(Features::new(2, broken), Err(DataError::FeatureLength { .. })));
        assert!(matches!(Features::new(2, []), Err(DataError::NoFeatures)));
    }

    #[test]
    fn a_single_tensor_has_the_labels_of_its_rows_in_the_metadata() {
        let rows = || [("x", Dtype::F32, vec![3, 2], f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))];
        let with = |labels| written(&rows(), &[("labels", labels), ("maps", "1x2x1")]);
        let features = opened(&with(r#"["b", 7, "b"]"#)).unwrap();
        assert_eq!(features.maps(), [1, 2, 1]);
        assert_eq!((features.class_name(0), features.class_name(1)), ("7", "b"));
        assert_eq!(features.values(), [3.0, 4.0, 1.0, 2.0, 5.0, 6.0]);
        assert_eq!(features.metadata().keys().collect::<Vec<_>>(), ["maps"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.safetensors");
        fs::write(&path, with(r#"["b", 7, "b"]"#)).unwrap();
        let in_order = FeatureRows::open(&path).unwrap();
        assert_eq!((in_order.row(1), &in_order.labels().unwrap()[1][..]), (&[3.0, 4.0][..], "7"));
        assert_eq!(
            complaint(&with(r#"["b", "c"]"#)),
            "f.safetensors: there are 2 labels for 3 rows of features"
        );
        let said = complaint(&with("b, c, d"));
        assert!(said.contains("not a JSON array of strings or whole numbers"), "{said}");
        // Several tensors are classes, whatever the metadata has.
        let two = ["a", "b"].map(|name| (name, Dtype::F32, vec![1, 1], f32s(&[1.0])));
        assert_eq!(
            opened(&written(&two, &[("labels", "[3]")])).unwrap().metadata()["labels"],
            "[3]"
        );
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_is_read_as_easyfsl_has_it() {
        for file in ["features_f32.parquet", "features_f64.parquet"] {
            assert_eq!(Features::open(golden(file)).unwrap(), pets(), "{file}");
        }
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_without_features_is_refused() {
        let said = |file| Features::open(golden(file)).unwrap_err().to_string();
        let ragged = said("features_ragged.parquet");
        assert!(ragged.ends_with("a row of class dog has 1 features in a row, not 3"), "{ragged}");
        let null = said("features_null.parquet");
        assert!(null.ends_with("column embedding in row 5 is null or empty, not values"), "{null}");
        let text = said("features_text.parquet");
        let wanted = "column embedding is BYTE_ARRAY, not a list of floats or doubles";
        assert!(text.ends_with(wanted), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let cut = folder.path().join("cut.parquet");
        let whole = fs::read(golden("features_f32.parquet")).unwrap();
        for length in [0, 4, 100, whole.len() - 1] {
            fs::write(&cut, &whole[..length]).unwrap();
            let error = Features::open(&cut).unwrap_err();
            assert!(matches!(error, DataError::Damaged { .. }), "{length}: {error}");
        }
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn parquet_names_the_feature_it_takes() {
        let error = Features::open(golden("features_f32.parquet")).unwrap_err().to_string();
        assert!(error.contains("--features parquet"), "{error}");
    }
}

mod other_programs {
    use std::io::{Cursor, Write};

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// An array of NumPy whose header has these entries.
    fn npy(kind: &str, order: &str, shape: &str, content: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), content].concat()
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn npz(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    /// What is made of files of these names, the first being that of features and a second one that of labels.
    fn opened(files: &[(&str, &[u8])]) -> Result<Features, String> {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
        for (path, (_, content)) in paths.iter().zip(files) {
            fs::write(path, content).unwrap();
        }
        let place = format!("{}/", folder.path().display());
        Features::open_with_labels(&paths[0], paths.get(1).map(PathBuf::as_path))
            .map_err(|error| error.to_string().replace(&place, ""))
    }

    fn refused(files: &[(&str, &[u8])]) -> String {
        opened(files).unwrap_err()
    }

    fn rows_of(name: &str, content: &[u8]) -> Result<FeatureRows, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        FeatureRows::open(path).map_err(|error| error.to_string())
    }

    #[test]
    fn arrays_are_read_as_numpy_writes_them() {
        for file in ["features_rows.npz", "features_classes.npz"] {
            assert_eq!(Features::open(golden(file)).unwrap(), pets(), "{file}");
        }
        let fortran = golden("features_fortran.npy");
        let rows = FeatureRows::open(&fortran).unwrap();
        assert_eq!((rows.rows(), rows.row(4), rows.labels()), (6, &[4.0, 4.25, 4.5][..], None));
        let folder = tempfile::tempdir().unwrap();
        let labels = folder.path().join("labels.txt");
        fs::write(&labels, "\u{feff}dog\r\ncat\r\ndog\r\nant\r\ncat\r\ndog\r\n\r\n").unwrap();
        assert_eq!(Features::open_with_labels(&fortran, Some(&labels)).unwrap(), pets());
        let pickled = Features::open(golden("features_pickled.npy")).unwrap_err().to_string();
        assert!(pickled.contains("the array is of pickled Python objects"), "{pickled}");
        let rows = FeatureRows::open(golden("features_rows.npz")).unwrap();
        assert_eq!(rows.labels().unwrap()[2..4], ["dog", "ant"]);
        assert_eq!(rows.mean(), [2.5, 2.75, 3.0]);
    }

    #[test]
    fn numbers_of_every_kind_and_order_are_read() {
        let all: [(&str, Vec<u8>); 6] = [
            ("'<f2'", [0x3e00_u16, 0xb400].into_iter().flat_map(u16::to_le_bytes).collect()),
            ("'>f2'", [0x3e00_u16, 0xb400].into_iter().flat_map(u16::to_be_bytes).collect()),
            ("'<f4'", [1.5_f32, -0.25].into_iter().flat_map(f32::to_le_bytes).collect()),
            ("'>f4'", [1.5_f32, -0.25].into_iter().flat_map(f32::to_be_bytes).collect()),
            ("'<f8'", [1.5_f64, -0.25].into_iter().flat_map(f64::to_le_bytes).collect()),
            ("'>f8'", [1.5_f64, -0.25].into_iter().flat_map(f64::to_be_bytes).collect()),
        ];
        for (kind, content) in all {
            let rows = rows_of("f.npy", &npy(kind, "False", "(1, 2)", &content)).unwrap();
            assert_eq!(rows.values(), [1.5, -0.25], "{kind}");
        }
    }

    #[test]
    fn labels_of_an_archive_are_numbers_or_text() {
        let labels: [(&str, Vec<u8>, &str); 6] = [
            ("'<i8'", [-3_i64, 12].into_iter().flat_map(i64::to_le_bytes).collect(), "-3"),
            ("'>i2'", [-3_i16, 12].into_iter().flat_map(i16::to_be_bytes).collect(), "-3"),
            ("'|u1'", vec![200, 3], "200"),
            (
                "'<u4'",
                [1_u32 << 31, 3].into_iter().flat_map(u32::to_le_bytes).collect(),
                "2147483648",
            ),
            ("'|S2'", b"a\0bc".to_vec(), "a"),
            (
                "'>U1'",
                ['\u{e9}' as u32, 'z' as u32].into_iter().flat_map(u32::to_be_bytes).collect(),
                "\u{e9}",
            ),
        ];
        let embeddings = npy("'<f4'", "False", "(2, 1)", &floats(&[1.0, 2.0]));
        for (kind, content, first) in labels {
            let labels = npy(kind, "False", "(2,)", &content);
            let file = npz(&[("labels.npy", labels), ("embeddings.npy", embeddings.clone())]);
            let rows = rows_of("f.npz", &file).unwrap();
            assert_eq!(rows.labels().unwrap()[0], first, "{kind}");
        }
        let file = npz(&[("embeddings.npy", embeddings.clone())]);
        assert_eq!(
            refused(&[("f.npz", &file)]),
            "f.npz: its rows have no labels: a file with a label a line says them"
        );
        assert_eq!(opened(&[("f.npz", &file), ("l.txt", b"x\ny")]).unwrap().class_name(1), "y");
        let floating = npy("'<f4'", "False", "(2,)", &floats(&[1.0, 2.0]));
        let file = npz(&[("embeddings.npy", embeddings), ("labels.npy", floating)]);
        assert_eq!(
            refused(&[("f.npz", &file)]),
            "f.npz: the array labels is <f4 [2], not whole numbers or text [n]"
        );
    }

    #[test]
    fn arrays_that_hold_no_features_are_refused_by_their_fault() {
        let say = |kind, shape, content: &[u8]| {
            refused(&[("f.npy", &npy(kind, "False", shape, content)), ("l.txt", b"x")])
        };
        let wanted = "not float16, float32 or float64 numbers [n, d]";
        for (kind, shape, bytes, why) in [
            ("'<i8'", "(1, 1)", 8, "the array is <i8 [1, 1], "),
            ("'|O'", "(1, 1)", 9, "the array is of pickled Python objects, which are never read, "),
            ("[('x', '<f4')]", "(1,)", 4, "the array is of records, "),
            ("'<V2'", "(1, 2)", 4, "NumPy has no bfloat16, "),
            ("'<f4'", "(2,)", 8, "the array is <f4 [2], "),
            ("'<f4'", "(1, 1, 1)", 4, "the array is <f4 [1, 1, 1], "),
        ] {
            let said = say(kind, shape, &vec![0; bytes]);
            assert!(said.contains(why) && said.ends_with(wanted), "{said}");
        }
        for shape in ["(0, 3)", "(3, 0)"] {
            let said = say("'<f4'", shape, &[]);
            assert!(said.ends_with("not one row of one value at least"), "{said}");
        }
        let nan = floats(&[1.0, 2.0, 3.0, f32::NAN]);
        assert_eq!(
            say("'<f4'", "(2, 2)", &nan),
            "f.npy: row 1, column 1 is NaN or infinite, not finite numbers"
        );
        let overflow = 1e300_f64.to_le_bytes();
        assert!(say("'<f8'", "(1, 1)", &overflow).contains("row 0, column 0 is NaN or infinite"));
        let labels = npy("'<f4'", "False", "(2, 1)", &floats(&[1.0, 2.0]));
        assert_eq!(
            refused(&[("f.npy", &labels), ("l.txt", b"x\ny\nz")]),
            "f.npy: there are 3 labels for 2 rows of features"
        );
        let said = refused(&[("f.npy", &labels), ("l.txt", b"x\n\ny")]);
        assert!(said.ends_with("line 2 of l.txt is empty, not a label"), "{said}");
    }

    #[test]
    fn a_header_that_lies_is_refused_before_anything_is_read() {
        let huge = [
            "(1000000000000, 384)",
            "(1000000000000, 1000000000000)",
            "(18446744073709551615, 1)",
            "(99999999999999999999, 1)",
        ];
        for shape in huge {
            let array = npy("'<f4'", "False", shape, &[0; 16]);
            for (name, file) in [("f.npy", array.clone()), ("f.npz", npz(&[("a.npy", array)]))] {
                let said = rows_of(name, &file).unwrap_err();
                assert!(said.contains(" is not a whole np"), "{said}");
            }
        }
        // Labels without bytes may be any number of them.
        let labels = npy("'|S0'", "False", "(1000000000000,)", &[]);
        let one = npy("'<f4'", "False", "(1, 1)", &[0; 4]);
        let said = rows_of("f.npz", &npz(&[("embeddings.npy", one), ("labels.npy", labels)]));
        assert!(said.unwrap_err().contains("the array labels is |S0"));
        let whole = npy("'<f4'", "False", "(2, 2)", &floats(&[1.0; 4]));
        for length in 0..whole.len() {
            assert!(rows_of("f.npy", &whole[..length]).is_err(), "{length} bytes");
        }
        assert!(rows_of("f.npy", &[&whole[..], &[0]].concat()).is_err());
        let mut long = whole.clone();
        long[8..10].copy_from_slice(&60_000_u16.to_le_bytes());
        assert!(rows_of("f.npy", &long).unwrap_err().contains("has 60000 bytes, at most 10000"));
        let archive = npz(&[("a.npy", whole), ("notes.txt", b"x".to_vec())]);
        assert!(
            rows_of("f.npz", &archive).unwrap_err().contains("notes.txt in it is no .npy file")
        );
        for length in (0..archive.len()).step_by(7) {
            assert!(rows_of("f.npz", &archive[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn classes_of_an_archive_have_rows_of_one_length() {
        let row = |values: &[f32]| {
            npy("'<f4'", "False", &format!("(1, {})", values.len()), &floats(values))
        };
        let file = npz(&[("b.npy", row(&[2.0])), ("a.npy", row(&[1.0]))]);
        let features = opened(&[("f.npz", &file)]).unwrap();
        assert_eq!((features.class_name(0), features.values()), ("a", &[1.0, 2.0][..]));
        let said = refused(&[("f.npz", &file), ("l.txt", b"x\ny")]);
        assert_eq!(said, "f.npz: it has labels of its own: no file of them is wanted");
        let file = npz(&[("a.npy", row(&[2.0])), ("b.npy", row(&[1.0, 3.0]))]);
        let said = refused(&[("f.npz", &file)]);
        assert!(said.contains("has 2 features in a row, not 1") || said.contains("has 1 features"));
        let reserved = npz(&[("__metadata__.npy", row(&[2.0]))]);
        assert!(refused(&[("f.npz", &reserved)]).contains("class __metadata__"));
    }

    #[test]
    fn tables_have_a_column_of_labels_and_columns_of_numbers() {
        let read = |text: &str| opened(&[("f.csv", text.as_bytes())]);
        let expected = opened(&[("f.csv", b"x,y,label\n1,2.5,owl\n-3e2,4,fox\n")]).unwrap();
        assert_eq!(
            (expected.class_name(0), expected.values()),
            ("fox", &[-300.0, 4.0, 1.0, 2.5][..])
        );
        for text in [
            "\u{feff}x,y,Class\r\n 1 ,2.5,owl\r\n-300,4,fox\r\n",
            "animal,x,y\nowl,1,2.5\nfox,-300,4",
            "x,\"label\",y\n1,\"owl\",2.5\n\n-300,fox,4\n",
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        // Labels may be numbers where the column says so.
        assert_eq!(read("label,x\n7,1\n").unwrap().class_name(0), "7");
        let unlabelled = rows_of("f.csv", b"x,y\n1,2\n3,4\n").unwrap();
        assert_eq!((unlabelled.values(), unlabelled.labels()), (&[1.0, 2.0, 3.0, 4.0][..], None));
        assert!(read("x,y\n1,2\n").unwrap_err().contains("no labels"));
        let both = opened(&[("f.csv", b"x,y\n1,2\n"), ("l.txt", b"owl")]).unwrap();
        assert_eq!(both.class_name(0), "owl");
        for (text, why) in [
            ("x,label\n1,a\nnan,b\n", "line 3, column x is \"nan\", not a finite number"),
            ("x,label\n1,a\n,b\n", "line 3, column x is empty, not a finite number"),
            ("x,label\n1,a\n2,\n", "line 3, column label is empty, not a label"),
            ("x,name\n1,a\nten,b\n", "line 3, column x is \"ten\", not a finite number"),
            ("x,label\n1,a\n2\n", "is not a whole CSV file: "),
            ("1,2,3\n4,5,6\n", "the first line is a row of numbers, not the names of columns"),
            (",x,label\n0,1,a\n", "column 0 of the first line is empty, as an index of rows"),
            ("text,x,file\na,1,b\n", "the column of labels is text or file, not one column"),
            ("label,class,x\na,b,1\n", "the column of labels is label or class, not one column"),
            ("label\na\n", "there is no class of features"),
            ("x,label\n", "there is no class of features"),
            ("", "there is no class of features"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text:?}: {said}");
        }
    }
}

mod episodes {
    use super::*;

    const PROTOCOL: Protocol = Protocol::new(3, 2).with_queries(4);

    #[test]
    fn episodes_are_those_of_images_with_as_many_examples() {
        let sizes = [9, 6, 7, 30];
        let classes = || sizes.iter().enumerate().map(|(class, &size)| (class.to_string(), size));
        let shape = ImageShape::new(1, 1, 1);
        let images = ImageSet::new(shape, vec![0; 52], classes().collect::<Vec<_>>()).unwrap();
        let images = images.sampler(PROTOCOL, 11).unwrap();
        let rows = classes().map(|(name, size)| (name, vec![1.0; size]));
        let features = Features::new(1, rows.collect::<Vec<_>>()).unwrap();
        let features = FeatureSampler::new(features, PROTOCOL, 11).unwrap();
        for index in [0, 1, 7, u64::MAX] {
            assert_eq!(features.episode(index), images.episode(index));
        }
    }

    #[test]
    fn a_batch_has_the_rows_of_its_episodes() {
        let features = clusters(5, 20, 3);
        let rows = features.tensor::<B>(&Default::default());
        for counts in [QueryCounts::Balanced, QueryCounts::Dirichlet { alpha: 2 }] {
            let sampler = FeatureSampler::new(features.clone(), PROTOCOL, 3).unwrap();
            let sampler = sampler.with_query_counts(counts).unwrap();
            let batch = sampler.batch([4, 9], &rows);
            let (mut support, mut queries) = (Vec::<f32>::new(), Vec::<f32>::new());
            let (mut labels, mut query_labels) = (Vec::<i64>::new(), Vec::<i64>::new());
            for index in [4, 9] {
                for (label, draw) in sampler.episode(index).classes.iter().enumerate() {
                    let row = |&example| features.row(features.rows_of(draw.class).start + example);
                    support.extend(draw.support.iter().flat_map(row));
                    queries.extend(draw.query.iter().flat_map(row));
                    labels.extend(draw.support.iter().map(|_| label as i64));
                    query_labels.extend(draw.query.iter().map(|_| label as i64));
                }
            }
            assert_eq!((batch.support.dims(), batch.queries.dims()), ([2, 6, 3], [2, 12, 3]));
            assert_eq!((batch.labels.dims(), batch.query_labels.dims()), ([2, 6], [2, 12]));
            let floats = |x: Tensor<B, 3>| x.into_data().iter::<f32>().collect::<Vec<_>>();
            assert_eq!(floats(batch.support), support);
            assert_eq!(floats(batch.queries), queries);
            assert_eq!(batch.labels.into_data().iter::<i64>().collect::<Vec<_>>(), labels);
            assert_eq!(
                batch.query_labels.into_data().iter::<i64>().collect::<Vec<_>>(),
                query_labels
            );
        }
    }

    #[test]
    fn unbalanced_queries_are_as_many_in_all_and_spread_unevenly() {
        let protocol = Protocol::new(5, 1);
        let sampler = FeatureSampler::new(clusters(8, 80, 1), protocol, 5).unwrap();
        let sampler = sampler.with_query_counts(QueryCounts::Dirichlet { alpha: 2 }).unwrap();
        let (mut sums, mut unlike) = ([0; 5], 0);
        for index in 0..2000 {
            let episode = sampler.episode(index);
            assert_eq!(episode, sampler.episode(index));
            let counts: Vec<_> = episode.classes.iter().map(|draw| draw.query.len()).collect();
            assert_eq!(counts.iter().sum::<usize>(), 75);
            sums.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
            unlike += usize::from(counts.iter().any(|count| !(8..=22).contains(count)));
            for draw in &episode.classes {
                let mut all = [draw.support.clone(), draw.query.clone()].concat();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), 1 + draw.query.len());
            }
        }
        for sum in sums {
            assert!((sum as f64 / 2000.0 - 15.0).abs() < 0.6, "{sums:?}");
        }
        assert!(unlike > 1000, "{unlike}");
    }

    #[test]
    fn the_same_support_is_drawn_whether_queries_are_balanced_or_not() {
        let balanced = FeatureSampler::new(clusters(6, 40, 1), PROTOCOL, 5).unwrap();
        let spread = QueryCounts::Dirichlet { alpha: 2 };
        let unbalanced = balanced.clone().with_query_counts(spread).unwrap();
        let classes = |sampler: &FeatureSampler| {
            let episode = sampler.episode(3);
            let classes: Vec<_> = episode.classes.iter().map(|draw| draw.class).collect();
            (classes, episode.classes[0].support.clone())
        };
        assert_eq!(classes(&balanced), classes(&unbalanced));
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let sampler = |protocol| FeatureSampler::new(clusters(3, 6, 1), protocol, 0);
        assert!(sampler(PROTOCOL).is_ok());
        let error = sampler(Protocol::new(4, 1).with_queries(1)).unwrap_err();
        assert_eq!(error, EpisodeError::NotEnoughClasses { ways: 4, actual: 3 });
        let error = sampler(Protocol::new(3, 3).with_queries(4)).unwrap_err();
        assert!(matches!(error, EpisodeError::NotEnoughExamples { needed: 7, actual: 6, .. }));
        assert!(sampler(Protocol::new(3, 0)).is_err());
        let spread =
            |alpha| sampler(PROTOCOL).unwrap().with_query_counts(QueryCounts::Dirichlet { alpha });
        // One class may get all queries.
        let error = spread(2).unwrap_err();
        assert!(matches!(error, EpisodeError::NotEnoughExamples { needed: 14, actual: 6, .. }));
        assert!(matches!(spread(0).unwrap_err(), EpisodeError::Alpha { actual: 0, .. }));
    }
}

mod tests {
    use super::*;

    /// Says the class of the first query, of all queries of the episode.
    #[derive(Module, Clone, Debug)]
    struct FirstQuery;

    impl<B: Backend> Head<B> for FirstQuery {
        const NAME: &'static str = "first-query";

        fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
            let ways = support.ways;
            FittedHead::new(ways, move |queries| {
                let [tasks, count, _] = queries.dims();
                let first = Tensor::<B, 3>::from_floats([[[1.0]]], &queries.device());
                let rest = Tensor::zeros([1, 1, ways - 1], &queries.device());
                Tensor::cat(vec![first, rest], 2).expand([tasks, count, ways])
            })
        }

        fn transductive(&self) -> bool {
            true
        }

        fn settings(&self) -> Value {
            json!({})
        }
    }

    #[test]
    fn a_test_finds_the_mean_accuracy_of_its_episodes() {
        let features = clusters(5, 30, 8);
        let sampler = FeatureSampler::new(features.clone(), Protocol::new(3, 2), 1).unwrap();
        let found =
            FeatureTest::new(40).run::<B>(&Prototypes::new(), &sampler, &Default::default());
        let squared = |one: &[f64], other: &[f32]| -> f64 {
            one.iter().zip(other).map(|(a, &b)| (a - f64::from(b)).powi(2)).sum()
        };
        let accuracies = (0..40).map(|index| {
            let episode = sampler.episode(index);
            let rows = |class: usize, examples: &[usize]| -> Vec<&[f32]> {
                let first = features.rows_of(class).start;
                examples.iter().map(|example| features.row(first + example)).collect()
            };
            let means: Vec<Vec<f64>> = episode
                .classes
                .iter()
                .map(|draw| {
                    let rows = rows(draw.class, &draw.support);
                    (0..8)
                        .map(|j| rows.iter().map(|row| f64::from(row[j])).sum::<f64>() / 2.0)
                        .collect()
                })
                .collect();
            let mut correct = 0;
            for (label, draw) in episode.classes.iter().enumerate() {
                for query in rows(draw.class, &draw.query) {
                    let nearest = (0..3).min_by(|&a, &b| {
                        squared(&means[a], query).total_cmp(&squared(&means[b], query))
                    });
                    correct += usize::from(nearest == Some(label));
                }
            }
            f64::from(correct as u32) / 45.0
        });
        let accuracies: Vec<_> = accuracies.collect();
        let mean = accuracies.iter().sum::<f64>() / 40.0;
        let variance = accuracies.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 39.0;
        assert!((found.accuracy - 100.0 * mean).abs() < 1e-4, "{found}");
        assert!((found.ci95 - 196.0 * (variance / 40.0).sqrt()).abs() < 1e-4, "{found}");
    }

    #[test]
    fn a_report_has_the_protocol_and_what_was_seen() {
        let sampler = FeatureSampler::new(clusters(4, 60, 2), Protocol::new(3, 1), 8).unwrap();
        let test = FeatureTest::new(30);
        let found = test.run::<B>(&FirstQuery, &sampler, &Default::default());
        assert!((found.accuracy - 100.0 / 3.0).abs() < 1e-4, "{found}");
        assert!(found.transductive && found.ci95 < 1e-4);
        let spread = QueryCounts::Dirichlet { alpha: 2 };
        let sampler = sampler.with_query_counts(spread).unwrap();
        let found = test.run::<B>(&FirstQuery, &sampler, &Default::default());
        assert!(found.ci95 > 1.0);
        let report = serde_json::to_value(&found).unwrap();
        for (key, value) in [
            ("method", json!("first-query")),
            ("ways", json!(3)),
            ("shots", json!(1)),
            ("queries", json!(15)),
            ("episodes", json!(30)),
            ("transductive", json!(true)),
            ("unbalanced", json!(2)),
            ("seed", json!(8)),
        ] {
            assert_eq!(report[key], value, "{key}");
        }
        assert!(report["episodes_per_s"].as_f64().unwrap() > 0.0);
    }

    #[test]
    fn the_size_of_a_launch_does_not_change_what_is_found() {
        // Rows so long that 12 episodes fill a launch.
        let features = clusters(3, 8, 40_000);
        let protocol = Protocol::new(2, 1).with_queries(16);
        assert!(FeatureSampler::new(features.clone(), protocol, 2).is_err());
        let protocol = protocol.with_queries(7);
        let sampler = FeatureSampler::new(features.clone(), protocol, 2).unwrap();
        let device = Default::default();
        let rows = features.tensor::<B>(&device);
        for name in ["simpleshot", "bd-cspn"] {
            let head = AnyHead::<B>::with_name(name, [40_000, 1, 1], &device).unwrap();
            let FeatureBatch { support, labels, ways, queries, query_labels } =
                sampler.batch(0..60, &rows);
            let logits = head.logits(EmbeddedSupport::new(support, labels, ways), queries);
            let accuracies = accuracies(logits, query_labels).into_data();
            let expected = 100.0 * accuracies.iter::<f64>().sum::<f64>() / 60.0;
            let found = FeatureTest::new(60).run::<B>(&head, &sampler, &device);
            assert!((found.accuracy - expected).abs() < 1e-4, "{name}: {found}, not {expected}");
        }
    }
}

#[test]
fn rows_are_maps_where_their_file_says_so() {
    let features = Features::new(12, [("a".to_owned(), vec![0.0; 12])]).unwrap();
    assert_eq!(features.maps(), [12, 1, 1]);
    assert_eq!(features.clone().with_metadata("maps", "3x2x2").maps(), [3, 2, 2]);
    for wrong in ["3x2", "3x2x3", "conv"] {
        assert_eq!(features.clone().with_metadata("maps", wrong).maps(), [12, 1, 1]);
    }
}
