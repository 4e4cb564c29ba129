//! An experiment file: a workload, what to measure, and the cells to compare.

mod base;
mod budget;
mod cells;
mod overrides;
mod read;
mod recall;
mod report;
mod variants;
mod workload;

use serde::{Deserialize, Serialize};

use crate::ToTomlError;
use crate::model_file::ModelConfig;
pub use budget::{Budget, Fit};
pub use recall::{RecallKind, RecallStyle, RecallTask};
pub use report::ReportConfig;
pub use workload::{ConversationWorkload, Measure, MixWorkload, Workload, WorkloadKind};

/// An experiment file, checked, with every cell resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// Usable as the name of a folder.
    pub name: String,
    /// Times that each cell is measured, at least 1.
    pub repeats: usize,
    /// Seed of the workload and of the order of the cells.
    pub seed: u64,
    /// The most bytes that the cache of a cell may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What every cell does.
    pub workload: Workload,
    /// What is measured.
    pub measure: Measure,
    /// What the report is asked first; left out, a budget that some cells fit into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportConfig>,
    /// At least one; see [`cells`](Self::cells).
    #[serde(rename = "cell")]
    cells: Vec<Cell>,
}

/// One row of the table: a name and a complete model config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Unique in the experiment: the variant's name and the swept values, such as `gqa cache.key=f16`; only the values when the
    /// file has no `[[variant]]`; `base` when it has no `[sweep]` either.
    pub name: String,
    /// Free text for the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What of it the experiment's budget chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// What the cell loads.
    pub config: ModelConfig,
}

impl Experiment {
    /// The cells: variants in the order of the file, each crossed with the sweep, whose last key varies fastest.
    #[must_use]
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Changes the cells by what the budget comes to, which only those know who know the model.
    pub fn fit(&mut self, mut decide: impl FnMut(&mut Cell)) {
        self.cells.iter_mut().for_each(&mut decide);
    }

    /// The experiment with the resolved config of each cell (`resolved.toml`). It is no experiment file any more:
    /// `toml::from_str::<Experiment>` reads it back.
    ///
    /// # Errors
    /// As [`ModelConfig::to_toml`].
    pub fn to_toml(&self) -> Result<String, ToTomlError> {
        toml::to_string(self)
    }
}

#[cfg(test)]
mod tests;
