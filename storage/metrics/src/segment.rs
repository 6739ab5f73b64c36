//! Writing and reading a segment.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Write};
use std::ops::Range;
use std::path::Path;

use polars::prelude::*;

use crate::{Curve, MetricsError};

/// Rows in a row group: small enough that a single series can be read without the others.
const ROW_GROUP: usize = 16 * 1024;

/// One point of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The order in which the points of an attempt were recorded.
    pub seq: u64,
    /// The metric's name.
    pub name: String,
    /// The x axis.
    pub step: u64,
    /// The value.
    pub value: f64,
    /// When it was reported, in milliseconds since 1970, if known.
    pub time: Option<i64>,
}

/// A written segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// BLAKE3 of the file, in hexadecimal: without it the segment cannot be read.
    pub hash: String,
    /// The number of points.
    pub points: u64,
    /// A summary of each series, which is available without reading the file.
    pub series: BTreeMap<String, SeriesSummary>,
}

/// A summary of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesSummary {
    /// The number of points.
    pub points: u64,
    /// The value of the last point.
    pub last: f64,
}

/// Writes the points of one attempt to `path`, through `temporary`, which must be on the same file system.
///
/// # Errors
/// If a file cannot be written. `path` is then unchanged.
pub fn write_segment(mut points: Vec<Point>, temporary: &Path, path: &Path) -> Result<Segment, MetricsError> {
    points.sort_by(|a, b| a.name.cmp(&b.name).then(a.seq.cmp(&b.seq)));
    let mut series = BTreeMap::new();
    for point in &points {
        let summary = series.entry(point.name.clone()).or_insert(SeriesSummary { points: 0, last: point.value });
        summary.points += 1;
        summary.last = point.value;
    }
    let content = encode_points(&points).map_err(MetricsError::parquet("encode", path))?;
    replace_file(&content, temporary, path).map_err(MetricsError::io("write", path))?;
    Ok(Segment { hash: blake3::hash(&content).to_hex().to_string(), points: points.len() as u64, series })
}

fn encode_points(points: &[Point]) -> PolarsResult<Vec<u8>> {
    let mut frame = df!(
        "name" => points.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(),
        "step" => points.iter().map(|p| p.step).collect::<Vec<_>>(),
        "value" => points.iter().map(|p| p.value).collect::<Vec<_>>(),
        "seq" => points.iter().map(|p| p.seq).collect::<Vec<_>>(),
        "time" => points.iter().map(|p| p.time).collect::<Vec<_>>(),
    )?;
    let mut content = Vec::new();
    ParquetWriter::new(&mut content)
        .with_compression(ParquetCompression::Zstd(None))
        .with_statistics(StatisticsOptions::full())
        .with_row_group_size(Some(ROW_GROUP))
        .finish(&mut frame)?;
    Ok(content)
}

/// Syncs the file first, then renames it, then syncs the folder: a crash leaves the complete file or none.
fn replace_file(content: &[u8], temporary: &Path, path: &Path) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = File::create(temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(temporary, path)?;
    File::open(folder)?.sync_all()
}

/// Reads the named series of a segment, or all of them if none is named, in the order of their names. Names that the
/// segment does not contain are ignored.
///
/// It blocks: do not call it from an async task.
///
/// # Errors
/// If the file does not exist, or its content does not have this hash.
pub fn read_segment(path: &Path, hash: &str, names: &[String]) -> Result<Vec<Curve>, MetricsError> {
    let content = read_verified(path, hash)?;
    decode_curves(&content, names).map_err(MetricsError::parquet("decode", path))
}

/// Reads all points of a segment, in the order in which they were recorded.
///
/// It blocks: do not call it from an async task.
///
/// # Errors
/// If the file does not exist, or its content does not have this hash.
pub fn read_points(path: &Path, hash: &str) -> Result<Vec<Point>, MetricsError> {
    let content = read_verified(path, hash)?;
    decode_points(&content).map_err(MetricsError::parquet("decode", path))
}

fn read_verified(path: &Path, hash: &str) -> Result<Vec<u8>, MetricsError> {
    let content = std::fs::read(path).map_err(MetricsError::io("read", path))?;
    let found = blake3::hash(&content).to_hex().to_string();
    if found != hash {
        return Err(MetricsError::Damaged { path: path.to_owned(), expected: hash.to_owned(), found });
    }
    Ok(content)
}

fn decode_points(content: &[u8]) -> PolarsResult<Vec<Point>> {
    let frame = ParquetReader::new(Cursor::new(content)).finish()?;
    let (names, steps) = (frame.column("name")?.str()?, frame.column("step")?.u64()?);
    let (values, seqs) = (frame.column("value")?.f64()?, frame.column("seq")?.u64()?);
    // Segments of earlier versions have no times.
    let times: Vec<Option<i64>> = match frame.column("time") {
        Ok(times) => times.i64()?.iter().collect(),
        Err(_) => vec![None; frame.height()],
    };
    let rows = names.iter().zip(steps.iter()).zip(values.iter()).zip(seqs.iter()).zip(times);
    let points = rows.map(|((((name, step), value), seq), time)| {
        Some(Point { seq: seq?, name: name?.to_owned(), step: step?, value: value?, time })
    });
    let mut points: Vec<Point> = points.collect::<Option<_>>().ok_or_else(has_null)?;
    points.sort_by_key(|point| point.seq);
    Ok(points)
}

/// Rows are sorted by name and then by `seq`, so a series is one range of rows: only the names are read to find it, and
/// only its row groups are decoded.
fn decode_curves(content: &[u8], names: &[String]) -> PolarsResult<Vec<Curve>> {
    let mut curves = Vec::new();
    for (name, rows) in name_runs(content)? {
        if names.is_empty() || names.contains(&name) {
            curves.push(decode_curve(content, name, rows)?);
        }
    }
    Ok(curves)
}

/// The rows of each series, in the order of the names.
fn name_runs(content: &[u8]) -> PolarsResult<Vec<(String, Range<usize>)>> {
    let frame = select_columns(content, &["name"]).finish()?;
    let mut runs: Vec<(String, Range<usize>)> = Vec::new();
    for (row, name) in frame.column("name")?.str()?.iter().enumerate() {
        let name = name.ok_or_else(has_null)?;
        match runs.last_mut() {
            Some((last, rows)) if last == name => rows.end = row + 1,
            _ => runs.push((name.to_owned(), row..row + 1)),
        }
    }
    Ok(runs)
}

fn decode_curve(content: &[u8], name: String, rows: Range<usize>) -> PolarsResult<Curve> {
    let frame = select_columns(content, &["step", "value"]).with_slice(Some((rows.start, rows.len()))).finish()?;
    let steps = frame.column("step")?.u64()?.iter().collect::<Option<_>>().ok_or_else(has_null)?;
    let values = frame.column("value")?.f64()?.iter().collect::<Option<_>>().ok_or_else(has_null)?;
    Ok(Curve { name, steps, values })
}

fn select_columns<'a>(content: &'a [u8], names: &[&str]) -> ParquetReader<Cursor<&'a [u8]>> {
    ParquetReader::new(Cursor::new(content)).with_columns(Some(names.iter().map(|name| (*name).to_owned()).collect()))
}

fn has_null() -> PolarsError {
    polars_err!(ComputeError: "a column has a null")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(seq: u64, name: &str, step: u64, value: f64) -> Point {
        Point { seq, name: name.into(), step, value, time: None }
    }

    /// Writes points to a new folder and returns their location.
    fn write_temporary(points: Vec<Point>) -> (tempfile::TempDir, std::path::PathBuf, Segment) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd [name] *").join("0-1.parquet");
        let segment = write_segment(points, &folder.path().join("new"), &path).unwrap();
        (folder, path, segment)
    }

    fn curve_bits(curves: &[Curve]) -> Vec<(String, Vec<u64>, Vec<u64>)> {
        curves
            .iter()
            .map(|c| (c.name.clone(), c.steps.clone(), c.values.iter().map(|v| v.to_bits()).collect()))
            .collect()
    }

    #[test]
    fn every_bit_comes_back() {
        let odd = [0.1, -0.0, f64::MIN_POSITIVE / 3.0, f64::MAX, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let points = odd.iter().enumerate().map(|(i, v)| point(i as u64 + 1, "x", u64::MAX - i as u64, *v)).collect();
        let (_folder, path, segment) = write_temporary(points);
        let curves = read_segment(&path, &segment.hash, &[]).unwrap();
        let expected = ("x".to_owned(), (0..8).map(|i| u64::MAX - i).collect(), odd.map(f64::to_bits).to_vec());
        assert_eq!(curve_bits(&curves), [expected]);
        assert_eq!((segment.points, segment.series["x"].points), (8, 8));
        assert_eq!(segment.series["x"].last, f64::NEG_INFINITY);
    }

    #[test]
    fn points_come_back_in_their_order_with_their_times() {
        let times = [Some(1_700_000_000_123), None, Some(-5)];
        let points = ["b", "a", "b"].iter().zip(times).enumerate();
        let points: Vec<Point> =
            points.map(|(seq, (name, time))| Point { time, ..point(seq as u64 + 1, name, 7, 0.5) }).collect();
        let (_folder, path, segment) = write_temporary(points.clone());
        assert_eq!(read_points(&path, &segment.hash).unwrap(), points);
    }

    #[test]
    fn a_segment_without_times_is_read() {
        let mut frame = df!("name" => ["a"], "step" => [3_u64], "value" => [0.5], "seq" => [1_u64]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.parquet");
        let mut content = Vec::new();
        ParquetWriter::new(&mut content).finish(&mut frame).unwrap();
        std::fs::write(&path, &content).unwrap();
        let hash = blake3::hash(&content).to_hex().to_string();
        assert_eq!(read_points(&path, &hash).unwrap(), [point(1, "a", 3, 0.5)]);
        assert_eq!(read_segment(&path, &hash, &[]).unwrap()[0].values, [0.5]);
    }

    #[test]
    fn only_what_is_named_is_read() {
        let points = vec![point(1, "b", 1, 1.0), point(2, "a", 1, 2.0), point(3, "b", 2, 3.0), point(4, "c", 1, 4.0)];
        let (_folder, path, segment) = write_temporary(points);
        let names = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|s| (*s).to_owned()).collect();
            let curves = read_segment(&path, &segment.hash, &asked).unwrap();
            curves.into_iter().map(|c| (c.name, c.values)).collect::<Vec<_>>()
        };
        assert_eq!(names(&["c", "b", "nothing"]), [("b".into(), vec![1.0, 3.0]), ("c".into(), vec![4.0])]);
        assert_eq!(names(&["nothing"]), []);
        assert_eq!(names(&[]).len(), 3);
    }

    #[test]
    fn a_damaged_file_is_told_so_and_never_decoded() {
        let (_folder, path, segment) = write_temporary((1..=50).map(|i| point(i, "x", i, 0.5)).collect());
        let whole = std::fs::read(&path).unwrap();
        for (what, content) in [
            ("shorter", whole[..whole.len() / 2].to_vec()),
            ("empty", Vec::new()),
            ("one bit", whole.iter().enumerate().map(|(i, b)| if i == 40 { b ^ 1 } else { *b }).collect()),
        ] {
            std::fs::write(&path, content).unwrap();
            let message = read_segment(&path, &segment.hash, &[]).unwrap_err().to_string();
            assert!(message.contains("0-1.parquet` is damaged"), "{what}: {message}");
        }
        std::fs::remove_file(&path).unwrap();
        let message = read_segment(&path, &segment.hash, &[]).unwrap_err().to_string();
        assert!(message.starts_with("cannot read the metric segment"), "{message}");
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_segment() {
        let (folder, path, segment) = write_temporary(vec![point(1, "x", 1, 1.0)]);
        let nowhere = folder.path().join("no such folder").join("new");
        assert!(write_segment(vec![point(1, "x", 1, 2.0)], &nowhere, &path).is_err());
        assert_eq!(read_segment(&path, &segment.hash, &[]).unwrap()[0].values, [1.0]);
    }

    #[test]
    fn one_series_out_of_many_row_groups_is_complete() {
        let points = (0..100_000).map(|i| point(i + 1, ["a", "b", "c"][i as usize % 3], i, i as f64)).collect();
        let (_folder, path, segment) = write_temporary(points);
        let curves = read_segment(&path, &segment.hash, &["b".to_owned()]).unwrap();
        assert_eq!(curves.len(), 1);
        assert!(curves[0].steps.iter().copied().eq((1..100_000).step_by(3)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn what_is_read_is_what_was_written(rows in prop::collection::vec(("[a-c]", any::<u64>(), any::<u64>()), 0..60)) {
            let points: Vec<Point> = rows.iter().enumerate()
                .map(|(i, (name, step, bits))| point(i as u64, name, *step, f64::from_bits(*bits))).collect();
            let (_folder, path, segment) = write_temporary(points.clone());
            let mut expected: BTreeMap<String, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
            for p in points {
                let (steps, values) = expected.entry(p.name).or_default();
                steps.push(p.step);
                values.push(p.value.to_bits());
            }
            let found = curve_bits(&read_segment(&path, &segment.hash, &[]).unwrap());
            prop_assert_eq!(found, expected.into_iter().map(|(n, (s, v))| (n, s, v)).collect::<Vec<_>>());
        }
    }
}
