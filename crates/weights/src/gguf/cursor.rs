//! A place in a GGUF header. Every read is checked against the end of the file.

use std::path::Path;

use crate::WeightsError;

pub(super) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(path: &'a Path, bytes: &'a [u8], at: usize) -> Self {
        Self { path, bytes, at }
    }

    /// Bytes from the start of the file.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes from here to the end of the file.
    pub(super) fn left(&self) -> u64 {
        self.bytes.len().saturating_sub(self.at) as u64
    }

    /// An error at byte `at`.
    pub(super) fn damaged(&self, at: usize, problem: impl Into<String>) -> WeightsError {
        WeightsError::Damaged {
            path: self.path.to_owned(),
            offset: at as u64,
            problem: problem.into(),
        }
    }

    pub(super) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], WeightsError> {
        if length > self.left() {
            return Err(self.damaged(
                self.at,
                format!(
                    "{what} takes {length} bytes, and {} are left; the file is cut or not what it says",
                    self.left()
                ),
            ));
        }
        let end = self.at + length as usize;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], WeightsError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, WeightsError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, WeightsError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, WeightsError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, WeightsError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length in u64, then that many bytes of UTF-8.
    pub(super) fn text(&mut self, what: &str) -> Result<&'a str, WeightsError> {
        let length = self.u64(what)?;
        let at = self.at;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|e| {
            self.damaged(
                at + e.valid_up_to(),
                format!("{what} is not UTF-8 (byte {} of {length})", e.valid_up_to()),
            )
        })
    }

    /// Refuses `count` things of at least `least` bytes each that the rest of the file cannot hold.
    pub(super) fn check_count(&self, at: usize, what: &str, count: u64, least: u64) -> Result<(), WeightsError> {
        if count > self.left() / least {
            return Err(self.damaged(
                at,
                format!(
                    "{count} {what} take at least {least} bytes each, and {} are left",
                    self.left()
                ),
            ));
        }
        Ok(())
    }
}
