//! The measurements, as a table and as JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use assay_gpu::{Architecture, DeviceProperties};
use assay_statistics::{Bootstrap, Estimate, format};
use serde_json::{Value, json};

use crate::Failure;

/// One measurement with its bound.
struct Row {
    what: String,
    /// Median of the samples.
    value: Estimate,
    unit: &'static str,
    /// The bound, and the ratio to it: 1 reaches the bound.
    bound: Option<(String, Estimate)>,
}

/// The results of a run.
pub struct GpuReport {
    device: Value,
    title: String,
    rows: Vec<Row>,
}

impl GpuReport {
    /// A report for this device, and for the program built from this commit.
    pub fn new(properties: &DeviceProperties, commit: Option<String>) -> GpuReport {
        let architecture = match &properties.architecture {
            Architecture::Cuda(major, minor) => format!("sm_{major}{minor}"),
            Architecture::Hip(target) => target.clone(),
        };
        let commit = commit.unwrap_or_else(|| "unknown".to_owned());
        let title = format!(
            "{} ({architecture}), driver {}, {}, commit {commit}",
            properties.name, properties.driver, properties.compiler
        );
        let device = json!({
            "name": properties.name, "architecture": architecture, "driver": properties.driver, "compiler": properties.compiler,
            "memory": properties.memory, "multiprocessors": properties.multiprocessors, "commit": commit,
        });
        GpuReport { device, title, rows: Vec::new() }
    }

    /// Adds a rate that was sampled separately.
    pub fn rate(&mut self, what: &str, unit: &'static str, samples: &[f64]) -> Result<(), Failure> {
        let value = Bootstrap::default().median(samples)?;
        self.rows.push(Row { what: what.to_owned(), value, unit, bound: None });
        Ok(())
    }

    /// Adds a rate, sampled alternately with its bound.
    pub fn bounded(
        &mut self,
        what: &str,
        unit: &'static str,
        samples: &[f64],
        (bound, bounds): (&str, &[f64]),
    ) -> Result<(), Failure> {
        let value = Bootstrap::default().median(samples)?;
        let ratios: Vec<f64> = samples.iter().zip(bounds).map(|(rate, bound)| rate / bound).collect();
        let ratio = Bootstrap::default().median(&ratios)?;
        self.rows.push(Row { what: what.to_owned(), value, unit, bound: Some((bound.to_owned(), ratio)) });
        Ok(())
    }

    /// Writes the report into `folder`, under the device's name and the commit.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let interval = |e: &Estimate| json!({"value": e.value, "low": e.interval.map(|i| i.low), "high": e.interval.map(|i| i.high)});
        let row = |row: &Row| {
            let bound = row.bound.as_ref().map(|(bound, ratio)| json!({"of": bound, "ratio": interval(ratio)}));
            json!({"what": row.what, "median": interval(&row.value), "unit": row.unit, "bound": bound})
        };
        let all = json!({"device": self.device, "rows": self.rows.iter().map(row).collect::<Vec<_>>()});
        let name = |key: &str| self.device[key].as_str().unwrap_or_default().replace([' ', '/'], "-").to_lowercase();
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}-{}.json", name("name"), name("commit")));
        std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&all)?))?;
        Ok(path)
    }
}

impl fmt::Display for GpuReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let widest = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
        for Row { what, value, unit, bound } in &self.rows {
            write!(f, "{what:widest$}  {}", format::quantity(value.value, unit))?;
            match bound {
                Some((bound, ratio)) => writeln!(f, "   {} of {bound}", format::ratio(ratio))?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
