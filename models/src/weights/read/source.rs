use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::rc::Rc;

/// The file that weights are in, on a disk or in memory.
#[derive(Clone)]
pub(super) enum Source {
    Disk(Rc<File>),
    Memory(Rc<[u8]>),
}

pub(super) trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

impl Source {
    pub(super) fn length(&self) -> io::Result<u64> {
        match self {
            Self::Disk(file) => Ok(file.metadata()?.len()),
            Self::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// A reader at the beginning. Readers of a file on a disk share one position: one is used at a time.
    pub(super) fn reader(&self) -> io::Result<BufReader<Box<dyn ReadSeek + '_>>> {
        let reader: Box<dyn ReadSeek + '_> = match self {
            Self::Disk(file) => {
                let mut file = &**file;
                file.rewind()?;
                Box::new(file)
            }
            Self::Memory(bytes) => Box::new(Cursor::new(&**bytes)),
        };
        Ok(BufReader::new(reader))
    }
}
