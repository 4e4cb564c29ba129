//! A weight file, mapped into memory.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;

use crate::WeightsError;

/// A file and where its tensor data begins.
pub(crate) struct MappedFile {
    pub(crate) path: PathBuf,
    map: Mmap,
    /// Where the header ends, in bytes from the start of the file. Set by whoever parsed it.
    pub(crate) data_start: usize,
}

impl MappedFile {
    pub(crate) fn open(path: &Path) -> Result<Self, WeightsError> {
        let io = |source| WeightsError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(WeightsError::Damaged {
                path: path.to_owned(),
                offset: 0,
                problem: "the file is empty; fetch it again".into(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            map: map(&file).map_err(io)?,
            data_start: 0,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Takes a part that has been read out of the process's memory. It is read from the file again where it is asked
    /// for again; a system that cannot do this keeps it.
    #[cfg_attr(unix, allow(unsafe_code))]
    pub(crate) fn release(&self, range: &Range<usize>) {
        #[cfg(unix)]
        {
            let range = range.start.min(self.map.len())..range.end.min(self.map.len());
            // SAFETY: pages of a file that is mapped to be read only: they come back as they were. A failure is harmless.
            let _ = unsafe {
                self.map
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len())
            };
        }
    }
}

#[allow(unsafe_code)]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is read-only and private to this crate, every access goes through the bounds of
    // the slice, and every bit pattern is a valid u8. What remains is another process that truncates the
    // file while it is mapped (SIGBUS), which no reader of mapped weights can exclude.
    unsafe { Mmap::map(file) }
}
