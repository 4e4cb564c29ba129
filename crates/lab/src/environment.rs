//! What an experiment was measured on.

use crate::Rates;
use crate::passage::Text;
use kvlab_config::Experiment;
use kvlab_engine::OpenDevice;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// `environment.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Version of kvlab.
    pub kvlab: String,
    /// The commit that it was built from, where that is known.
    pub commit: Option<String>,
    /// `release`, or `debug`: then times say little.
    pub build: String,
    /// Operating system and processor architecture.
    pub system: String,
    /// Each device of the experiment, as in the config, and what it is.
    pub devices: BTreeMap<String, String>,
    /// Processor cores that this process may use.
    pub cores: usize,
    /// Threads of the processor that the configs ask for; `None` is all cores.
    pub threads: Option<usize>,
    /// Seed of the order of the cells and of the confidence intervals.
    pub seed: u64,
    /// SHA-256 of the text.
    pub text_sha256: String,
    /// The most that this machine reads and computes a second; `None` until it was measured, and in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// When the first record was begun, UTC.
    pub date: String,
}

impl Environment {
    pub(crate) fn of(experiment: &Experiment, text: &Text, commit: Option<String>) -> Self {
        let cells = experiment.cells().iter();
        let devices = cells.map(|cell| cell.config.backend.device).map(|name| {
            let found = OpenDevice::open(name).map(|device| device.description);
            (name.to_string(), found.unwrap_or_else(|error| error.to_string()))
        });
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        Self {
            kvlab: env!("CARGO_PKG_VERSION").to_owned(),
            commit,
            build: build.to_owned(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            devices: devices.collect(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads: experiment.cells().iter().find_map(|cell| cell.config.backend.threads),
            seed: experiment.seed,
            text_sha256: Sha256::digest(&text.whole)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            rates: None,
            date: utc(SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())),
        }
    }

    /// What makes numbers of `other` incomparable with those of this one, in words. A date does not.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let Self {
            kvlab,
            commit,
            build,
            system,
            devices,
            cores,
            threads,
            seed,
            text_sha256,
            rates: _,
            date: _,
        } = self;
        let show = |commit: &Option<String>| commit.clone().unwrap_or_else(|| "unknown".to_owned());
        let was = |what: &str, then: &dyn std::fmt::Debug, now: &dyn std::fmt::Debug| {
            Some(format!("{what} was {then:?} and is {now:?}"))
        };
        match () {
            () if text_sha256 != &other.text_sha256 => Some("the text of the workload was another".to_owned()),
            () if kvlab != &other.kvlab => was("kvlab's version", kvlab, &other.kvlab),
            () if commit != &other.commit => was("kvlab's commit", &show(commit), &show(&other.commit)),
            () if build != &other.build => was("the build of kvlab", build, &other.build),
            () if system != &other.system => was("the system", system, &other.system),
            () if devices != &other.devices => was("the device", devices, &other.devices),
            () if cores != &other.cores => was("the number of cores", cores, &other.cores),
            () if threads != &other.threads => was("the number of threads", threads, &other.threads),
            () if seed != &other.seed => was("the seed", seed, &other.seed),
            () => None,
        }
    }
}

/// ISO 8601 of so many seconds since 1970 began in UTC. Days to a date as in Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms" (`civil_from_days`): years begin in March, so that the leap day is the last.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), want);
        }
    }
}
