//! `records.jsonl`: a file that is only ever added to, a line at a time.

use crate::{LabError, Record};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Its name in the folder of a run.
pub(crate) const FILE: &str = "records.jsonl";

/// The records of a file that nobody writes to: of one that is being written, the whole lines.
pub(crate) fn read(path: &Path, bytes: &[u8]) -> Result<Vec<Record>, LabError> {
    Ok(parse(bytes, path)?.0)
}

/// The records of a run, in memory and on disk. The file is locked as long as this lives.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
}

impl Journal {
    /// Opens the records of a folder. A last line that was cut short, by an interruption in the middle of writing, is
    /// taken away; with `fresh` everything is.
    pub(crate) fn open(folder: &Path, fresh: bool) -> Result<Self, LabError> {
        let path = folder.join(FILE);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = file.map_err(LabError::io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LabError::Busy(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(LabError::Io { path, source }),
        }
        let mut bytes = Vec::new();
        if !fresh {
            file.read_to_end(&mut bytes).map_err(LabError::io(&path))?;
        }
        let (records, valid) = parse(&bytes, &path)?;
        file.set_len(valid as u64).map_err(LabError::io(&path))?;
        file.seek(SeekFrom::End(0)).map_err(LabError::io(&path))?;
        Ok(Self { path, file, records })
    }

    /// The records, in the order in which they were written.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// The same, when there are no more to come.
    pub(crate) fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// The folder that they are in.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Adds a line. What is kept in memory is what a later run will read: a float may lose its last bit on the way.
    pub(crate) fn append(&mut self, record: &Record) -> Result<(), LabError> {
        let refused = |error: serde_json::Error| LabError::Write {
            what: "a record",
            reason: error.to_string(),
        };
        let line = serde_json::to_string(record).map_err(refused)?;
        let read = serde_json::from_str(&line).map_err(refused)?;
        let written = self.file.write_all((line + "\n").as_bytes());
        written.map_err(LabError::io(&self.path))?;
        self.records.push(read);
        Ok(())
    }
}

/// The records, and the bytes of the whole lines they are in.
fn parse(bytes: &[u8], path: &Path) -> Result<(Vec<Record>, usize), LabError> {
    let valid = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..valid].split(|&byte| byte == b'\n').enumerate();
    let records = lines.filter(|(_, line)| !line.is_empty()).map(|(i, line)| {
        serde_json::from_slice(line).map_err(|error| LabError::Records {
            path: path.to_owned(),
            line: i + 1,
            reason: error.to_string(),
        })
    });
    Ok((records.collect::<Result<_, _>>()?, valid))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{FailureRecord, GreedyRecord, QualityRecord, SpeedRecord, UsageRecord};

    const USAGE: UsageRecord = UsageRecord {
        payload_bytes: 1,
        metadata_bytes: 2,
        padding_bytes: 3,
        reserved_bytes: 4,
        peak_bytes: u64::MAX,
    };

    fn records() -> Vec<Record> {
        vec![
            Record::Quality(QualityRecord {
                cell: "a | \"b\"\n".into(),
                window: 3,
                mean_nll_nats: 0.1,
                oracle_mean_nll_nats: 1.5e-9,
                nll_nats: vec![0.5, 2.0],
                oracle_nll_nats: vec![],
                kl_nats: vec![0.0],
                logit_difference: vec![1e10],
                top1_agreed: 7,
            }),
            Record::Greedy(GreedyRecord {
                cell: "ä".into(),
                prompt_tokens: 1,
                tokens: vec![0, u32::MAX],
                oracle_tokens: vec![2],
                usage: USAGE,
                kernels: vec!["reference".into()],
            }),
            Record::Speed(SpeedRecord {
                cell: "c".into(),
                repeat: 0,
                prompt_tokens: 1,
                new_tokens: 2,
                batch: 2,
                warm_up_tokens: 2,
                ttft_ms: vec![1.25, 1.5],
                gaps_ms: vec![vec![0.25], vec![]],
                tokens: vec![5, 6],
                cached_tokens: 0,
                cached: None,
                work: None,
                process: None,
                usage: USAGE,
                kernels: vec![],
            }),
            Record::Failure(FailureRecord {
                cell: "d".into(),
                error: "NaN".into(),
            }),
        ]
    }

    fn text(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("records.jsonl")).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), false).unwrap();
        for record in records() {
            journal.append(&record).unwrap();
        }
        assert_eq!(journal.records(), records());
        drop(journal);
        assert_eq!(text(folder.path()).lines().count(), 4);
        assert_eq!(Journal::open(folder.path(), false).unwrap().records(), records());
    }

    #[test]
    fn a_line_that_was_cut_is_taken_away_and_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), false).unwrap();
        let all = records();
        all.iter().for_each(|record| journal.append(record).unwrap());
        drop(journal);
        let whole = text(folder.path());
        let last = whole.trim_end().rfind('\n').unwrap() + 1;
        for cut in last..whole.len() {
            std::fs::write(folder.path().join("records.jsonl"), &whole[..cut]).unwrap();
            let mut journal = Journal::open(folder.path(), false).unwrap();
            assert_eq!(journal.records(), &all[..3], "cut at {cut}");
            assert_eq!(text(folder.path()), whole[..last]);
            journal.append(&all[3]).unwrap();
            assert_eq!(text(folder.path()), whole);
        }
    }

    #[test]
    fn a_broken_line_in_the_middle_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        std::fs::write(
            &path,
            "\n{\"kind\":\"failure\",\"cell\":\"a\",\"error\":\"\"}\n{\"kind\":\"spe\n{}\n",
        )
        .unwrap();
        let error = Journal::open(folder.path(), false).err().unwrap();
        assert!(matches!(error, LabError::Records { line: 3, .. }), "{error}");
        assert_eq!(
            Journal::open(folder.path(), true).unwrap().records(),
            [],
            "a fresh start needs no records"
        );
        assert_eq!(text(folder.path()), "");
    }

    #[test]
    fn two_runs_do_not_write_to_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Journal::open(folder.path(), false).unwrap();
        assert!(matches!(Journal::open(folder.path(), true), Err(LabError::Busy(_))));
        drop(first);
        assert!(Journal::open(folder.path(), false).is_ok());
    }
}
