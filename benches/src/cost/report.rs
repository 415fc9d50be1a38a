//! Tables and pictures of results that are there already: of sweeps that a limit of time ended, from other machines, or of an earlier version.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use heedful_host::exit::ProgramError;
use heedful_host::whole_files::write_atomically;
use serde::Deserialize;

use super::outcome::{Outcome, Point, sequences};
use super::point::Pass;

/// The name of PyTorch's layer among the mechanisms.
const PYTORCH: &str = "PyTorch";

/// Writes `cost.md` and pictures beside each `cost.json` in `folder` and the folders in it, and `report.md` with all of them. Returns their number.
///
/// What `benches/gpu/peers.py layer` measured, a `peers.jsonl` anywhere in `folder`, stands beside the sweeps of the same sizes.
///
/// # Errors
/// If there is no `cost.json`, one cannot be read, or a file cannot be written.
pub fn write(folder: &Path) -> Result<usize, ProgramError> {
    let files = files_in(folder)?;
    let named = |name: &str| files.iter().filter(|path| path.ends_with(name)).collect::<Vec<_>>();
    let layers: Vec<Layer> = named("peers.jsonl").into_iter().map(|path| layers(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let sweeps = named("cost.json");
    if sweeps.is_empty() {
        return Err(ProgramError::usage(format!("`{}` holds no cost.json; give a folder of `heedful cost --out DIR`", folder.display())));
    }
    let mut page = "# What attention costs\n".to_owned();
    for path in &sweeps {
        let place = path.parent().expect("a file is in a folder");
        let mut outcome = Outcome::parse(path).map_err(|error| ProgramError::failure(format!("`{}`: {error}", path.display())))?;
        add(&mut outcome, &layers);
        let pictures = outcome.draw(place)?;
        let within = place.strip_prefix(folder).unwrap_or(place);
        let title = if within.as_os_str().is_empty() { "Here".to_owned() } else { within.display().to_string() };
        let _ = write!(page, "\n## {title}\n\n{}", outcome.summary().replace("\n## ", "\n### "));
        for picture in pictures {
            let _ = write!(page, "\n![{0}]({0})\n", within.join(picture).display());
        }
    }
    write_atomically(&folder.join("report.md"), page.as_bytes())?;
    Ok(sweeps.len())
}

/// All files in a folder and those in it, in the order of their names.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ProgramError> {
    let fail =
        |error: std::io::Error| ProgramError::usage(format!("`{}`: {error}; give a folder of `heedful cost --out DIR`", folder.display()));
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).map_err(fail)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(fail)?;
    entries.sort();
    let mut files = Vec::new();
    for path in entries {
        // A link may lead back here.
        if path.is_dir() && !path.is_symlink() {
            files.extend(files_in(&path)?);
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// What `peers.py layer` writes of a layer of attention with its projections.
#[derive(Clone, Debug, Deserialize)]
struct Layer {
    device: String,
    pass: String,
    dtype: String,
    length: usize,
    batch: usize,
    heads: usize,
    d_model: usize,
    causal: bool,
    /// None if it failed.
    ms: Option<f64>,
}

/// The layers of a file of `peers.py`, which holds other measurements too. A line that the end of the process cut short is none.
fn layers(path: &Path) -> Result<Vec<Layer>, ProgramError> {
    let text = fs::read_to_string(path).map_err(|error| ProgramError::failure(format!("`{}`: {error}", path.display())))?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let own = lines.filter(|line| line["command"] == "layer");
    own.map(|line| serde_json::from_value(line).map_err(|error| ProgramError::failure(format!("`{}`: {error}", path.display())))).collect()
}

/// Adds the layers that have the sizes of a sweep, on the backend of their device, as one more mechanism.
fn add(outcome: &mut Outcome, layers: &[Layer]) {
    let dtype = format!("{:?}", outcome.precision).to_lowercase();
    for (backend, pass) in outcome.groups() {
        let lengths: Vec<usize> = outcome.of(&backend, pass).iter().map(|point| point.length).collect();
        let is_like = |layer: &&Layer| {
            let pass = match pass {
                Pass::Forward => layer.pass == "forward",
                Pass::Training => layer.pass == "forward+backward",
                Pass::Decode => false,
            };
            let sizes = (layer.d_model, layer.heads, layer.batch);
            pass && layer.causal != outcome.is_bidirectional
                && outcome.kv_heads.is_none()
                && (layer.device == backend && layer.dtype == dtype)
                && sizes == (outcome.d_model, outcome.heads, sequences(outcome.batch, outcome.tokens, layer.length))
                && lengths.contains(&layer.length)
        };
        let point = |layer: &Layer| {
            let seconds = vec![layer.ms? / 1e3];
            Some(Point { seconds, ..Point::new(&backend, PYTORCH, pass, layer.length) })
        };
        let mut found: Vec<Point> = layers.iter().filter(is_like).filter_map(point).collect();
        // The latest of several measurements.
        found.reverse();
        found.sort_by_key(|point| point.length);
        found.dedup_by_key(|point| point.length);
        outcome.points.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use heedful_models::kernels::precision::Precision;

    use super::*;
    use crate::cost::outcome::tests::outcome;

    const LAYER: &str = r#""command": "layer", "device": "cuda", "pass": "forward+backward", "dtype": "bf16", "heads": 2, "width": 8, "d_model": 16, "causal": true"#;

    /// A sweep on a GPU, 512 tokens at once.
    fn on_gpu() -> Outcome {
        let mut outcome = Outcome { tokens: Some(512), precision: Precision::Bf16, ..outcome() };
        outcome.points.iter_mut().for_each(|point| point.backend = "cuda".to_owned());
        outcome
    }

    #[test]
    fn a_folder_of_sweeps_is_drawn_with_the_layers_of_the_same_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let sweep = folder.path().join("gpu/cost-bf16");
        on_gpu().write(&sweep).unwrap();
        outcome().write(folder.path()).unwrap();
        let lines = [
            format!("{{{LAYER}, \"length\": 64, \"batch\": 8, \"ms\": 0.25}}"),
            format!("{{{LAYER}, \"length\": 128, \"batch\": 4, \"ms\": 7.5}}"),
            // Measured again, and then another batch, a length that the sweep has not, a failure, and a line cut short.
            format!("{{{LAYER}, \"length\": 128, \"batch\": 4, \"ms\": 0.75}}"),
            format!("{{{LAYER}, \"length\": 256, \"batch\": 4, \"ms\": 100}}"),
            format!("{{{LAYER}, \"length\": 96, \"batch\": 5, \"ms\": 100}}"),
            format!("{{{LAYER}, \"length\": 512, \"batch\": 1, \"error\": \"out of memory\"}}"),
            "{\"command\": \"device\", \"what\": \"copy\", \"ms\": 100}".to_owned(),
            format!("{{{LAYER}, \"length\""),
        ];
        fs::write(folder.path().join("peers.jsonl"), lines.join("\n")).unwrap();

        assert_eq!(write(folder.path()).unwrap(), 2);
        let page = fs::read_to_string(folder.path().join("report.md")).unwrap();
        for part in ["\n## Here\n", "\n### flex, forward and backward", "\n## gpu/cost-bf16\n", "(gpu/cost-bf16/time-cuda-training.svg)"] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        let row = page.lines().find(|line| line.starts_with("| PyTorch")).unwrap_or_else(|| panic!("no PyTorch in {page}"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1..6], ["PyTorch", "0.250", "0.750", "–", "–"]);
        assert_eq!(page.matches("| PyTorch").count(), 1, "it has other sizes on flex");
        assert!(fs::read_to_string(sweep.join("cost.md")).unwrap().contains("| PyTorch"));
        assert!(fs::read_to_string(sweep.join("time-cuda-training.svg")).unwrap().contains("PyTorch"));
        assert_eq!(Outcome::parse(&sweep.join("cost.json")).unwrap(), on_gpu(), "results stay as they are");

        let mut bidirectional = Outcome { is_bidirectional: true, ..on_gpu() };
        let points = bidirectional.points.len();
        add(&mut bidirectional, &super::layers(&folder.path().join("peers.jsonl")).unwrap());
        assert_eq!(bidirectional.points.len(), points, "PyTorch's layers are causal");
    }

    #[test]
    fn a_folder_without_results_and_a_broken_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |code: u8, part: &str| {
            let error = write(folder.path()).unwrap_err();
            assert!(error.exit_code() == code && error.to_string().contains(part), "{error}");
        };
        refused(2, "holds no cost.json");
        fs::write(folder.path().join("cost.json"), "{").unwrap();
        refused(1, "cost.json`");
    }
}
