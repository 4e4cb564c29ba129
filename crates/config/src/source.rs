//! Files that a config comes from: their text, their folder, and places in them.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A config larger than this (bytes) is refused before it is parsed.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    /// Bytes `start..end` of a file.
    File { source: SourceId, start: usize, end: usize },
    /// A `--set` argument.
    Set(Arc<str>),
}

/// A file of [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceId(pub(crate) usize);

/// A file that has been read.
#[derive(Debug)]
pub(crate) struct Source {
    /// As the caller or the `base` key named it.
    pub(crate) name: String,
    /// Relative paths in it start here.
    pub(crate) dir: PathBuf,
    pub(crate) text: String,
    /// The key of another file that named this one.
    pub(crate) included_at: Option<At>,
    line_starts: Vec<usize>,
}

impl Source {
    pub(crate) fn new(name: String, dir: &Path, text: String, included_at: Option<At>) -> Self {
        // A relative folder that cannot be made absolute (no current folder) stays as it is.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self {
            name,
            dir,
            text,
            included_at,
            line_starts,
        }
    }

    /// Line and column of a byte, both from 1; the column counts characters.
    pub(crate) fn line_column(&self, byte: usize) -> (usize, usize) {
        let byte = byte.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= byte);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..byte).unwrap_or("");
        (line, before.trim_start_matches('\u{feff}').chars().count() + 1)
    }
}

/// All files that one config comes from; the first is the file itself.
#[derive(Debug, Default)]
pub(crate) struct Sources(pub(crate) Vec<Source>);

impl Sources {
    pub(crate) fn add(&mut self, source: Source) -> SourceId {
        self.0.push(source);
        SourceId(self.0.len() - 1)
    }

    /// The absolute path that a config means by `path`: relative to the folder of its file, or to the current folder when it
    /// comes from `--set`, where a shell completes it.
    pub(crate) fn resolve(&self, at: &At, path: &str) -> PathBuf {
        match at {
            At::File { source, .. } => match self.0.get(source.0) {
                Some(source) => tidy(&source.dir.join(path)),
                None => PathBuf::from(path),
            },
            At::Set(_) => std::path::absolute(path).map_or_else(|_| PathBuf::from(path), |path| tidy(&path)),
        }
    }
}

impl At {
    pub(crate) fn file(source: SourceId, span: Range<usize>) -> Self {
        Self::File {
            source,
            start: span.start,
            end: span.end,
        }
    }
}

/// The path without `.` and `..`, by its spelling: a symbolic link is not followed, so that a config means the same wherever
/// its folder is linked from.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                tidy.pop();
            }
            other => tidy.push(other),
        }
    }
    tidy
}

/// Why a file could not be read as text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is a folder, not a TOML file")]
    Folder,
    #[error("has more than {MAX_BYTES} bytes, which is more than any config: is it a TOML file?")]
    TooLarge,
    #[error("is not UTF-8 text: byte {offset} (line {line}) is 0x{byte:02x}")]
    NotText { offset: usize, line: usize, byte: u8 },
}

/// The text of a file, at most [`MAX_BYTES`] of it.
pub(crate) fn read(path: &Path) -> Result<String, ReadError> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(ReadError::Folder);
    }
    let mut bytes = Vec::new();
    // Not by the length in its metadata: a pipe or /dev/zero has none.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ReadError::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let line = 1 + bytes.iter().take(offset).filter(|byte| **byte == b'\n').count();
        ReadError::NotText {
            offset,
            line,
            byte: bytes.get(offset).copied().unwrap_or(0),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn columns_count_characters() {
        let source = Source::new("x".into(), Path::new("/d"), "\u{feff}ab\nπé = 1\n".into(), None);
        assert_eq!(source.line_column(3), (1, 1));
        assert_eq!(source.line_column(4), (1, 2));
        let one = source.text.find('1').unwrap();
        assert_eq!(source.line_column(one), (2, 6));
        assert_eq!(source.line_column(9999), (3, 1));
    }

    #[test]
    fn paths_start_at_the_folder_of_the_file() {
        let mut sources = Sources::default();
        let id = sources.add(Source::new(
            "x".into(),
            Path::new("/a/configs/models"),
            String::new(),
            None,
        ));
        let resolve = |path| sources.resolve(&At::file(id, 0..0), path);
        assert_eq!(resolve("x.gguf"), Path::new("/a/configs/models/x.gguf"));
        assert_eq!(resolve("./../../m/./x"), Path::new("/a/m/x"));
        assert_eq!(resolve("/m/x"), Path::new("/m/x"));
        assert_eq!(resolve("../../../../../m"), Path::new("/m"));
        let current = std::env::current_dir().unwrap();
        assert_eq!(sources.resolve(&At::Set("".into()), "m/x"), current.join("m/x"));
    }

    #[test]
    fn unreadable_files_say_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        assert!(matches!(read(&path), Err(ReadError::Io(_))));
        assert!(matches!(read(folder.path()), Err(ReadError::Folder)));
        std::fs::write(&path, b"ab\nc\xff").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert_eq!(error, "is not UTF-8 text: byte 4 (line 2) is 0xff");
        let size = usize::try_from(MAX_BYTES).unwrap();
        std::fs::write(&path, vec![b' '; size]).unwrap();
        assert_eq!(read(&path).unwrap().len(), size);
        std::fs::write(&path, vec![b' '; size + 1]).unwrap();
        assert!(matches!(read(&path), Err(ReadError::TooLarge)));
    }
}
