use super::*;
use crate::data::image_files::{Py, pickled};

fn open(bytes: &[u8]) -> Result<Pickle, String> {
    Pickle::read("x.pkl".into(), bytes, bytes.len())
        .map_err(|error| error.to_string().split_once(".pkl: ").unwrap().1.to_owned())
}

/// The pickles that `tests/golden/pickles.py` has written.
fn golden(name: &str) -> Vec<u8> {
    let all = include_str!("../../../tests/golden/pickles.json");
    let all: serde_json::Value = serde_json::from_str(all).unwrap();
    let digits = all[name].as_str().unwrap();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn every_protocol_gives_the_same_values() {
    for protocol in ["2", "3", "4", "5"] {
        let pickle = open(&golden(protocol)).unwrap();
        let get = |key| pickle.root().get(key).unwrap();
        let (shape, pixels) = get("images").array().unwrap();
        assert_eq!((shape, pixels), (&[2, 2, 2, 3][..], &(0..24).collect::<Vec<u8>>()[..]));
        let labels = [3, -5, 70000, 1 << 40, 255];
        assert_eq!(get("labels").integers().unwrap(), labels, "protocol {protocol}");
        assert_eq!(get("again").integers().unwrap(), labels);
        assert_eq!(get("narrow").integers().unwrap(), [-1, 2]);
        assert_eq!(get("big").integers().unwrap(), [-2, 258]);
        let encoded = get("encoded").items().unwrap();
        let encoded: Vec<&[u8]> = encoded.iter().map(|value| value.bytes().unwrap()).collect();
        assert_eq!(encoded, [&b"\x89PNG\xff"[..], b"\x00\n", &[1, 200], b""]);
        assert_eq!(get("name").text().unwrap(), "é");
        let (name, columns) = &get("columns").entries().unwrap()[0];
        assert_eq!((name.as_str(), columns.integers().unwrap()), ("a", vec![1, 2]));
    }
}

#[test]
fn text_of_python_2_is_read_as_latin_1() {
    // {'image': '\xe9', u'label': 'b'}, with SHORT_BINSTRING and BINSTRING.
    let bytes = b"\x80\x02}q\x00(U\x05imageq\x01U\x01\xe9X\x05\0\0\0labelT\x01\0\0\0bu.";
    let pickle = open(bytes).unwrap();
    assert_eq!(pickle.root().get("image").unwrap().text().unwrap(), "é");
    assert_eq!(pickle.root().get("label").unwrap().text().unwrap(), "b");
}

#[test]
fn values_of_another_kind_are_named() {
    let pickle = open(&golden("4")).unwrap();
    let get = |key| pickle.root().get(key).unwrap();
    let said = |error: DataError| error.to_string().split_once(".pkl: ").unwrap().1.to_owned();
    assert_eq!(said(pickle.root().get("x").err().unwrap()), "the whole is not a dictionary with x");
    assert_eq!(said(get("labels").array().unwrap_err()), "labels is not an array of uint8");
    assert_eq!(said(get("big").bytes().unwrap_err()), "big is not an array of uint8");
    assert_eq!(said(get("rest").integers().unwrap_err()), "rest is not a list of integers");
    assert_eq!(said(get("name").items().err().unwrap()), "name is not a list");
    assert_eq!(said(get("labels").text().unwrap_err()), "labels is not a text");
}

#[test]
fn nothing_is_called_that_is_not_known() {
    let system = open(b"\x80\x02cos\nsystem\n(X\x04\0\0\0echotR.").err().unwrap();
    assert_eq!(system, "it calls os system of \"echo\", which is not read, before byte 25");
    let stacked = open(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.").err().unwrap();
    assert!(stacked.starts_with("it calls os system"), "{stacked}");
    let object = open(b"\x80\x02cnumpy\ndtype\n(X\x02\0\0\0O8tR.").err().unwrap();
    assert!(object.starts_with("it calls numpy dtype of \"O8\", which is not read"), "{object}");
    let columns = open(&golden("by columns")).err().unwrap();
    assert!(columns.starts_with("an array does not lie row by row"), "{columns}");
    let made = open(b"\x80\x02cos\nsystem\nX\x04\0\0\0echo\x85\x81.").err().unwrap();
    assert!(made.starts_with("it calls os system of \"echo\""), "{made}");
    assert!(open(b"\x80\x02N\x82.").err().unwrap().contains("unknown instruction 0x82"));
    assert!(open(b"(dp0\n.").err().unwrap().contains("no pickle of protocol 2 or later"));
    assert!(open(b"").err().unwrap().contains("no pickle"));
}

#[test]
fn an_array_has_as_many_bytes_as_its_shape_says() {
    let wrong = open(&pickled(&Py::Array(vec![2, 3], vec![0; 5]))).err().unwrap();
    assert!(wrong.starts_with("an array of [2, 3] has 5 bytes"), "{wrong}");
    let huge = open(&pickled(&Py::Array(vec![i32::MAX as usize; 3], vec![0; 5]))).err().unwrap();
    assert!(huge.starts_with("an array of [2147483647, "), "{huge}");
    for shape in [vec![usize::MAX], vec![1; 65]] {
        let none = open(&pickled(&Py::Array(shape, vec![0; 1]))).err().unwrap();
        assert!(none.starts_with("an array has no shape"), "{none}");
    }
}

#[test]
fn every_cut_and_many_a_change_is_an_error_or_a_value() {
    for protocol in ["2", "5"] {
        let whole = golden(protocol);
        for length in 0..whole.len() {
            assert!(open(&whole[..length]).is_err(), "{length} bytes");
        }
        for place in 0..whole.len() {
            for change in [1, 0x29, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[place] ^= change;
                let Ok(pickle) = open(&bytes) else { continue };
                let Ok(entries) = pickle.root().entries() else { continue };
                for (_, value) in entries {
                    let _ = (value.array(), value.integers(), value.text(), value.bytes());
                }
            }
        }
    }
}

#[test]
fn a_small_file_does_not_become_large() {
    let text = [&b"\x80\x02X\x00\x10\0\0"[..], &[b'x'; 4096], b"q\x000"].concat();
    let text = [&text[..text.len() - 1], b"c_codecs\nencode\nq\x01"].concat();
    let again = b"h\x01h\x00X\x06\0\0\0latin1\x86R".repeat(100);
    let actual = open(&[&text[..], &again, b"."].concat()).err().unwrap();
    assert!(actual.starts_with("it decodes a text again and again"), "{actual}");

    let text = [&b"\x80\x02X\x00\x10\0\0"[..], &[b'x'; 4096], b"q\0"].concat();
    let list = [&text[..], b"](", &b"h\0".repeat(100), b"e."].concat();
    let error = open(&list).unwrap().root().texts().unwrap_err().to_string();
    assert!(error.ends_with("the whole has more text than the file"), "{error}");
    let names = [&text[..], b"}(", &b"h\0K\0".repeat(100), b"u."].concat();
    assert!(open(&names).unwrap().root().entries().is_err());
    let function = [&text[..], b"h\0h\0\x93)R."].concat();
    let error = open(&function).err().unwrap();
    assert!(error.starts_with("it calls what has a name of 8192 bytes"), "{error}");
    for instruction in [&b")"[..], b"(", b"h\0", b"q\0", b"q\0h\0\x85", b"\x85"] {
        let many = [&text[..], &instruction.repeat(3 << 20), b"."].concat();
        let error = open(&many).err().unwrap();
        assert!(error.contains("instructions, before byte"), "{error}");
    }
}

#[test]
fn the_length_of_a_value_is_bounded_by_the_file() {
    for bytes in
        [&b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."[..], b"\x80\x02T\xff\xff\xff\x7fa"]
    {
        assert!(open(bytes).err().unwrap().starts_with("it ends in the middle of a value"));
    }
    let nested = [&b"\x80\x02)"[..], &vec![0x85; 100_000], b"."].concat();
    assert_eq!(open(&nested).unwrap().root().items().unwrap().len(), 1);
    for missing in [
        &b"\x80\x02."[..],
        b"\x80\x02a",
        b"\x80\x02u",
        b"\x80\x02t",
        b"\x80\x02R",
        b"\x80\x02b",
        b"\x80\x02h\x05",
    ] {
        assert!(open(missing).err().unwrap().contains("not there"), "{missing:?}");
    }
}
