//! The files of a report, in its folder.

use super::markdown::bare;
use super::{Report, csv_files, figure, markdown, page, samples, tables};
use crate::LabError;
use std::fs;
use std::path::Path;

/// Writes `report.html`, `report.md`, `results.csv`, `layers.csv`, `records.parquet`, `figures/*.svg` and `tables/*` into `out`.
///
/// # Errors
/// [`LabError`]: a file that cannot be written.
pub(crate) fn write(report: &Report<'_>, out: &Path) -> Result<(), LabError> {
    for folder in [out.to_owned(), out.join("figures"), out.join("tables")] {
        fs::create_dir_all(&folder).map_err(LabError::io(&folder))?;
    }
    let put = |name: &str, bytes: &[u8]| {
        let path = out.join(name);
        fs::write(&path, bytes).map_err(LabError::io(&path))
    };
    let figures = figure::all(report)?;
    let mut files: Vec<(String, String)> = vec![
        (
            "results.csv".into(),
            "a line for each cell and length of prompt, every digit".into(),
        ),
        ("layers.csv".into(), "what each layer of each cache holds".into()),
        ("report.md".into(), "this report without figures".into()),
        ("records.parquet".into(), "every sample, as one flat table".into()),
    ];
    if !report.is_several() {
        files.push(("records.jsonl".into(), "the raw records".into()));
        files.push(("resolved.toml".into(), "the resolved config of every cell".into()));
        files.push(("environment.json".into(), "what it was measured on".into()));
    }
    for figure in &figures {
        let name = format!("figures/{}.svg", figure.name);
        put(&name, figure.paper.as_bytes())?;
        files.push((name, figure.title.clone()));
    }
    let result = tables::result(&report.rows)?;
    put("results.csv", result.csv.as_bytes())?;
    put("tables/result.md", bare(&result).as_bytes())?;
    for table in tables::details(&report.rows)? {
        put(&format!("tables/{}.csv", table.name), table.csv.as_bytes())?;
        put(&format!("tables/{}.md", table.name), bare(&table).as_bytes())?;
        files.push((format!("tables/{}.csv", table.name), table.title.to_owned()));
    }
    let specs = report.rows.iter().zip(&report.facts);
    let specs: Vec<_> = specs
        .filter_map(|(row, facts)| Some((row.cell.as_str(), facts.spec.as_ref()?)))
        .collect();
    put("layers.csv", csv_files::layers_csv(&specs)?.as_bytes())?;
    put("records.parquet", &samples::parquet(report)?)?;
    put("report.md", markdown(report)?.as_bytes())?;
    put("report.html", page::page(report, &figures, &files)?.as_bytes())
}
