use std::fs;
use std::io::{Cursor, Write};
use std::path::PathBuf;

use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;

/// A tensor as a pickle declares it.
#[derive(Clone)]
struct Declared {
    name: &'static str,
    storage: &'static str,
    key: &'static str,
    elements: u64,
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
}

fn floats(name: &'static str, key: &'static str, elements: u64) -> Declared {
    let (shape, strides) = (vec![elements], vec![1]);
    Declared { name, storage: "FloatStorage", key, elements, offset: 0, shape, strides }
}

fn text_of(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn number(number: u64) -> Vec<u8> {
    [b"\x8a\x08", &number.to_le_bytes()[..]].concat()
}

fn numbers(of: &[u64]) -> Vec<u8> {
    [&b"("[..], &of.iter().flat_map(|&of| number(of)).collect::<Vec<_>>(), b"t"].concat()
}

fn item(of: &Declared) -> Vec<u8> {
    [
        text_of(of.name),
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text_of("storage"),
        format!("ctorch\n{}\n", of.storage).into(),
        text_of(of.key),
        text_of("cpu"),
        number(of.elements),
        b"tQ".to_vec(),
        number(of.offset),
        numbers(&of.shape),
        numbers(&of.strides),
        b"\x89}tR".to_vec(),
    ]
    .concat()
}

fn state_dict(tensors: &[Declared]) -> Vec<u8> {
    [b"\x80\x02}(".to_vec(), tensors.iter().flat_map(item).collect(), b"u.".to_vec()].concat()
}

/// Entries of a zip archive.
fn zipped(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in entries {
        writer.start_file(format!("model/{name}"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn legacy(pickle: &[u8], storages: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let keys: Vec<u8> = storages.iter().flat_map(|(key, ..)| text_of(key)).collect();
    let content =
        |&(_, elements, bytes): &(&str, u64, &[u8])| [&elements.to_le_bytes(), bytes].concat();
    let start = [LEGACY, b"\x80\x02M\xe9\x03.", b"\x80\x02}."].concat();
    let keys = [&b"\x80\x02]("[..], &keys, b"e."].concat();
    [&start[..], pickle, &keys, &storages.iter().flat_map(content).collect::<Vec<_>>()].concat()
}

fn bytes(of: &[f32]) -> Vec<u8> {
    of.iter().flat_map(|value| value.to_le_bytes()).collect()
}

type Found = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The tensors of a file, or why it is refused: from a disk as from memory.
fn found(content: &[u8]) -> Result<Found, String> {
    let folder = TempDir::new().unwrap();
    let file: PathBuf = folder.path().join("m.pth");
    fs::write(&file, content).unwrap();
    let [from_disk, from_memory] = [read(&file), decode(content.into(), &file)].map(values_of);
    assert_eq!(from_disk, from_memory);
    from_disk
}

fn values_of(tensors: Result<Snapshots, WeightsError>) -> Result<Found, String> {
    let tensors = tensors.map_err(|error| {
        let text = error.to_string();
        text.split_once("m.pth: ").unwrap_or_else(|| panic!("{text}")).1.to_owned()
    })?;
    let values = |(name, tensor): (String, TensorSnapshot)| {
        let data = tensor.to_data().unwrap();
        assert_eq!(data.shape, tensor.shape, "{name}");
        (name, (data.shape.to_vec(), data.into_vec().unwrap()))
    };
    Ok(tensors.into_iter().map(values).collect())
}

/// Two tensors in each kind of file.
fn files() -> [Vec<u8>; 4] {
    let declared = [floats("one", "0", 3), floats("b.two", "1", 2)];
    let (pickle, one, two) = (state_dict(&declared), bytes(&[1.0, 2.0, 3.0]), bytes(&[4.0, 5.0]));
    let entries = [("data.pkl", &pickle[..]), ("data/0", &one), ("data/1", &two)];
    let views = [("b.two", vec![2], &two), ("one", vec![3], &one)].map(|(name, shape, bytes)| {
        let kind = ::safetensors::Dtype::F32;
        (name, ::safetensors::tensor::TensorView::new(kind, shape, bytes).unwrap())
    });
    [
        zipped(&entries, CompressionMethod::Stored),
        zipped(&entries, CompressionMethod::Deflated),
        legacy(&pickle, &[("0", 3, &one), ("1", 2, &two)]),
        ::safetensors::serialize(views, None).unwrap(),
    ]
}

#[test]
fn every_cut_of_a_file_is_an_error() {
    let expected = BTreeMap::from([
        ("b.two".to_owned(), (vec![2], vec![4.0, 5.0])),
        ("one".to_owned(), (vec![3], vec![1.0, 2.0, 3.0])),
    ]);
    for (at, whole) in files().into_iter().enumerate() {
        assert_eq!(found(&whole).unwrap(), expected, "file {at}");
        for length in 0..whole.len() {
            assert!(found(&whole[..length]).is_err(), "{length} bytes of file {at}");
        }
    }
}

#[test]
fn every_changed_byte_is_an_error_or_gives_tensors() {
    for whole in files() {
        for place in 0..whole.len() {
            for change in [1, 0x80] {
                let mut bytes = whole.clone();
                bytes[place] ^= change;
                let _ = found(&bytes);
            }
        }
    }
}

#[test]
fn a_cut_file_of_weights_names_its_parameter() {
    let [_, _, legacy, safetensors] = files();
    for (whole, parameter) in [(legacy, "b.two"), (safetensors, "one")] {
        let (from, to) = (whole.len() - if parameter == "one" { 12 } else { 8 }, whole.len());
        let expected = |length| {
            format!(
                "the parameter {parameter} takes bytes {from} to {to} of the file, which ends at byte {length}"
            )
        };
        assert_eq!(found(&whole[..to - 1]).unwrap_err(), expected(to - 1));
        assert_eq!(found(&whole[..from]).unwrap_err(), expected(from));
    }
    let pickle = state_dict(&[floats("one", "0", 1), floats("two", "1", 1)]);
    let whole = self::legacy(&pickle, &[("0", 1, &bytes(&[1.0])), ("1", 1, &bytes(&[2.0]))]);
    let length = whole.len() - 12;
    assert_eq!(
        found(&whole[..length]).unwrap_err(),
        format!("the parameter two has its storage 1 beyond the end of the file, at byte {length}")
    );
}

#[test]
fn a_storage_that_is_absent_short_or_damaged_names_its_parameter() {
    let pickle = state_dict(&[floats("one", "0", 3), floats("two", "1", 2)]);
    let (one, two) = (bytes(&[1.0, 2.0, 3.0]), bytes(&[4.0, 5.0]));
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let absent = zipped(&[("data.pkl", &pickle), ("data/0", &one)], method);
        assert_eq!(
            found(&absent).unwrap_err(),
            "the parameter two has its storage in model/data/1, which is not in the file"
        );
        let short =
            zipped(&[("data.pkl", &pickle), ("data/0", &one), ("data/1", &two[..7])], method);
        assert_eq!(
            found(&short).unwrap_err(),
            "the parameter two declares a storage of 8 bytes, that of the file has 7"
        );
    }
    let entries = [("data.pkl", &pickle[..]), ("data/0", &one), ("data/1", &two)];
    let mut changed = zipped(&entries, CompressionMethod::Stored);
    let place = changed.windows(8).position(|window| window == two).unwrap();
    changed[place] ^= 1;
    let error = found(&changed).unwrap_err();
    assert!(
        error.starts_with("the parameter two has its storage in model/data/1, which is damaged"),
        "{error}"
    );
    let declared = legacy(&pickle, &[("0", 3, &one), ("1", 1, &two)]);
    assert_eq!(
        found(&declared).unwrap_err(),
        "the parameter two declares a storage of 8 bytes, that of the file has 4"
    );
    let unlisted = legacy(&pickle, &[("0", 3, &one)]);
    let error = found(&unlisted).unwrap_err();
    assert!(error.starts_with("the parameter two has its storage 1 beyond the end"), "{error}");
}

#[test]
fn tensors_share_a_storage_in_every_layout_and_type() {
    let tensor = |name, offset, shape: &[u64], strides: &[u64]| Declared {
        offset,
        shape: shape.to_vec(),
        strides: strides.to_vec(),
        ..floats(name, "0", 6)
    };
    let typed = |name, storage, key, elements| Declared { storage, ..floats(name, key, elements) };
    let pickle = state_dict(&[
        tensor("rows", 0, &[2, 3], &[3, 1]),
        tensor("columns", 0, &[3, 2], &[1, 3]),
        tensor("view", 1, &[2], &[2]),
        tensor("repeated", 5, &[2, 2], &[0, 0]),
        tensor("scalar", 4, &[], &[]),
        tensor("empty", 6, &[0, 3], &[3, 1]),
        typed("double", "DoubleStorage", "1", 1),
        typed("half", "HalfStorage", "2", 1),
        typed("brain", "BFloat16Storage", "3", 1),
        typed("long", "LongStorage", "4", 1),
        typed("int", "IntStorage", "5", 1),
        typed("short", "ShortStorage", "6", 1),
        typed("char", "CharStorage", "7", 1),
        typed("byte", "ByteStorage", "8", 1),
        typed("bool", "BoolStorage", "9", 2),
    ]);
    let little: [Vec<u8>; 10] = [
        bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        (-1.5f64).to_le_bytes().into(),
        vec![0, 0xbe],
        vec![0xc0, 0xbf],
        (-7i64).to_le_bytes().into(),
        (-8i32).to_le_bytes().into(),
        (-9i16).to_le_bytes().into(),
        vec![0xf6],
        vec![200],
        vec![1, 0],
    ];
    let sizes = [4, 8, 2, 2, 8, 4, 2, 1, 1, 1];
    let mut big = little.clone();
    for (bytes, size) in big.iter_mut().zip(sizes) {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    let entries = |order: &'static [u8], storages: &[Vec<u8>]| {
        let names = (0..10).map(|key| format!("data/{key}"));
        let named: Vec<_> = names.zip(storages.to_vec()).collect();
        let mut all = vec![("data.pkl", &pickle[..]), ("byteorder", order)];
        all.extend(named.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])));
        [CompressionMethod::Stored, CompressionMethod::Deflated].map(|method| zipped(&all, method))
    };
    let keys = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let storages: Vec<_> = (0..10)
        .map(|at| (keys[at], (little[at].len() / sizes[at]) as u64, &little[at][..]))
        .collect();
    let all =
        [&entries(b"little", &little)[..], &entries(b"big", &big), &[legacy(&pickle, &storages)]];
    for file in all.concat() {
        let found = found(&file).unwrap();
        let values = |name: &str| (&found[name].0[..], &found[name].1[..]);
        assert_eq!(values("rows"), (&[2, 3][..], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0][..]));
        assert_eq!(values("columns"), (&[3, 2][..], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0][..]));
        assert_eq!(values("view"), (&[2][..], &[1.0, 3.0][..]));
        assert_eq!(values("repeated"), (&[2, 2][..], &[5.0; 4][..]));
        assert_eq!(values("scalar"), (&[][..], &[4.0][..]));
        assert_eq!(values("empty"), (&[0, 3][..], &[][..]));
        assert_eq!((values("double").1, values("half").1), (&[-1.5][..], &[-1.5][..]));
        assert_eq!((values("brain").1, values("long").1), (&[-1.5][..], &[-7.0][..]));
        assert_eq!((values("int").1, values("short").1), (&[-8.0][..], &[-9.0][..]));
        assert_eq!((values("char").1, values("byte").1), (&[-10.0][..], &[200.0][..]));
        assert_eq!(values("bool").1, [1.0, 0.0]);
    }
}

#[test]
fn parameters_and_wrapping_dictionaries_are_followed() {
    let inner = state_dict(&[floats("weight", "0", 1)]);
    let inner = &inner[3..inner.len() - 2];
    let tensor = &item(&floats("bias", "0", 1))[text_of("bias").len()..];
    let pickle = [
        &b"\x80\x02}("[..],
        &text_of("state_dict"),
        b"ccollections\nOrderedDict\n)R",
        inner,
        b"u",
        &text_of("epoch"),
        b"K\x07",
        &text_of("bias"),
        b"ctorch._utils\n_rebuild_parameter\n(",
        tensor,
        b"\x88}tRu.",
    ]
    .concat();
    let one = bytes(&[2.5]);
    for file in [
        zipped(&[("data.pkl", &pickle), ("data/0", &one)], CompressionMethod::Stored),
        legacy(&pickle, &[("0", 1, &one)]),
    ] {
        let found = found(&file).unwrap();
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["bias", "state_dict.weight"]);
        assert_eq!(found["bias"], (vec![1], vec![2.5]));
    }
}

/// Files of tests/golden/state_dicts.py.
#[test]
fn tensors_that_pytorch_wrote_have_its_values() {
    let files = [
        &include_bytes!("../../../tests/golden/state_dict.pt")[..],
        include_bytes!("../../../tests/golden/state_dict_legacy.pt"),
    ];
    let base: Vec<f32> = (0..12u8).map(f32::from).collect();
    let columns = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11u8].map(f32::from);
    let expected: [(&str, &[usize], &[f32]); 11] = [
        ("rows", &[3, 4], &base),
        ("columns", &[4, 3], &columns),
        ("view", &[2], &[6.0, 10.0]),
        ("expanded", &[3], &[5.0; 3]),
        ("parameter", &[2], &[0.5, -0.5]),
        ("brain", &[2], &[1.5, -2.0]),
        ("half", &[2], &[1.5, -2.0]),
        ("double", &[2, 1], &[1.5, -2.0]),
        ("long", &[], &[7.0]),
        ("bool", &[2], &[1.0, 0.0]),
        ("empty", &[0, 3], &[]),
    ];
    let expected: Found = expected
        .into_iter()
        .map(|(name, shape, values)| (format!("model.{name}"), (shape.to_vec(), values.to_vec())))
        .collect();
    for file in files {
        assert_eq!(found(file).unwrap(), expected);
        for length in (0..file.len()).step_by(7).chain([file.len() - 1]) {
            assert!(found(&file[..length]).is_err(), "{length} bytes");
        }
    }
}

/// A pickle in both of PyTorch's containers, which hold eight bytes of storage.
fn containers(pickle: &[u8]) -> [Vec<u8>; 2] {
    let entries = [("data.pkl", pickle), ("data/0", &[0; 8])];
    [zipped(&entries, CompressionMethod::Deflated), legacy(pickle, &[("0", 2, &[0; 8])])]
}

#[test]
fn shapes_that_the_storage_has_not_are_refused() {
    let declared = |offset, shape: &[u64], strides: &[u64]| Declared {
        offset,
        shape: shape.to_vec(),
        strides: strides.to_vec(),
        ..floats("w", "0", 2)
    };
    let many = vec![1; 65];
    for (tensor, part) in [
        (declared(0, &[1 << 40], &[1]), "is of the shape [1099511627776]"),
        (declared(0, &[1 << 40], &[0]), "is of the shape [1099511627776]"),
        (declared(0, &[1 << 32, 1 << 32], &[0, 0]), "is of the shape"),
        (declared(1 << 62, &[1], &[1]), "lies from element 4611686018427387904"),
        (declared(0, &[2], &[u64::MAX >> 1]), "lies from element 0"),
        (declared(0, &[3], &[u64::MAX >> 1]), "lies from element 0"),
        (declared(u64::MAX, &[1], &[1]), "has no offset, sizes and strides"),
        (declared(0, &[u64::MAX], &[1]), "has no offset, sizes and strides"),
        (declared(0, &many, &many), "has no offset, sizes and strides"),
        (declared(0, &[2], &[]), "has 1 sizes and 0 strides"),
        (
            Declared { elements: 1 << 40, ..declared(0, &[1], &[1]) },
            "declares a storage of 4398046511104 bytes",
        ),
        (
            Declared { elements: 1 << 62, ..declared(0, &[1], &[1]) },
            "has a storage of an impossible size",
        ),
        (
            Declared { storage: "ComplexFloatStorage", ..floats("w", "0", 1) },
            "has a ComplexFloatStorage",
        ),
    ] {
        for file in containers(&state_dict(std::slice::from_ref(&tensor))) {
            let error = found(&file).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
    for shape in [[0, 1 << 62], [1 << 62, 0]] {
        for file in containers(&state_dict(&[declared(0, &shape, &[1, 1])])) {
            assert!(found(&file).unwrap()["w"].1.is_empty());
        }
    }
}

#[test]
fn values_that_double_through_the_memo_end_at_once() {
    let list = [&b"\x80\x02]q\0"[..], &b"](h\0h\0eq\0".repeat(40), b"."].concat();
    let tuple = [&b"\x80\x02)q\0"[..], &b"h\0h\0\x86q\0".repeat(40), b"."].concat();
    for pickle in [list, tuple] {
        for file in containers(&pickle) {
            let error = found(&file).unwrap_err();
            assert!(error.contains("no dictionary of tensors"), "{error}");
        }
    }
    let start = state_dict(&[floats("w", "0", 2)]);
    let start = &start[..start.len() - 1];
    let doubled = [start, b"q\0", &b"}(U\x01ah\0U\x01bh\0uq\0".repeat(40), b"."].concat();
    for file in containers(&doubled) {
        let found = found(&file).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found.keys().next().unwrap(), &format!("{}w", "a.".repeat(40)));
    }
    let nested = [start, b"q\0", &b"}(U\x01ah\0uq\0".repeat(20_000), b"."].concat();
    for file in containers(&nested) {
        let error = found(&file).unwrap_err();
        assert!(
            error.contains("names of its tensors have more than 4194304 characters"),
            "{error}"
        );
    }
}

#[test]
fn small_files_that_inflate_are_refused() {
    let zeros = vec![0; (65 << 20) + 16];
    let long = zipped(&[("data.pkl", &zeros[..33 << 20])], CompressionMethod::Deflated);
    assert!(long.len() < 1 << 20);
    assert_eq!(found(&long).unwrap_err(), "model/data.pkl has more than 33554432 bytes");
    let pickle = state_dict(&[floats("w", "0", (zeros.len() / 4) as u64)]);
    let entries = [("data.pkl", &pickle[..]), ("data/0", &zeros)];
    let error = found(&zipped(&entries, CompressionMethod::Deflated)).unwrap_err();
    assert!(
        error.contains(
            "the parameter w has its storage in model/data/0, with which all have far more"
        ),
        "{error}"
    );
}

#[test]
fn headers_of_safetensors_are_within_the_file() {
    for (length, part) in [
        (u64::MAX, "its header has 18446744073709551615 bytes, the file 10"),
        (3, "its header has 3 bytes, the file 10"),
        (2, "its tensors end at byte 10, the file at byte 11"),
    ] {
        let file =
            [&length.to_le_bytes()[..], b"{}", if length == 2 { b"x" } else { b"" }].concat();
        assert_eq!(found(&file).unwrap_err(), part);
    }
    for (shape, offsets) in [
        ("[2]", "[0,4]"),
        ("[1]", "[4,8]"),
        ("[1099511627776,1099511627776]", "[0,8]"),
        ("[0]", "[8,0]"),
    ] {
        let header =
            format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
        assert!(found(&file).is_err(), "{header}");
    }
}

#[test]
fn files_of_another_kind_are_named() {
    let mut tar = vec![0; 600];
    tar[TAR..TAR + 5].copy_from_slice(b"ustar");
    assert!(found(&tar).unwrap_err().starts_with("it is a tar archive"));
    for content in [&b""[..], b"\x80\x02}.", b"no weights at all"] {
        let error = found(content).unwrap_err();
        assert_eq!(error, "it is neither a safetensors file nor one of torch.save");
    }
}
