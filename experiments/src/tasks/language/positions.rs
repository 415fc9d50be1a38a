//! The loss by the position of a token in the window that evaluation reads: how much the tokens before it help.

use std::fmt::Write;

use burn::tensor::Tensor;
use heedful_host::whole_files::write_atomically;
use heedful_models::architectures::language_model::LanguageModel;
use heedful_runs::plot::{Axis, Curve, CurvePoint, PlotError, curves, picture};
use heedful_runs::run_folder::RunPaths;

use crate::session::error::ExperimentError;
use crate::tasks::token_losses::token_losses;

/// The table in the folder of a run.
const TABLE: &str = "positions.csv";
/// The picture beside it.
pub(super) const PICTURE: &str = "positions.svg";

/// Sums of losses by position, the first position of a window being 1. Where there is a memory, a window is what is read at once after it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PositionLosses {
    /// Nats and tokens.
    sums: Vec<(f64, u64)>,
}

impl PositionLosses {
    /// Those of windows of `context` tokens, of which nothing is scored yet.
    pub(super) fn new(context: usize) -> Self {
        Self { sums: vec![(0.0, 0); context] }
    }

    /// Adds the losses of the `targets` that follow hidden states `[N, C]`, which stand at the indices `columns` of their windows.
    pub(super) fn add(&mut self, model: &LanguageModel, hidden: &Tensor<2>, targets: &[i32], columns: &[usize]) {
        debug_assert_eq!(targets.len(), columns.len());
        let losses = token_losses(hidden, targets, |hidden| model.project(hidden));
        for (column, nats) in columns.iter().zip(losses) {
            self.sums[*column].0 += nats;
            self.sums[*column].1 += 1;
        }
    }

    /// Position, tokens and mean loss in nats, of each position at which a token was scored.
    pub(super) fn means(&self) -> impl Iterator<Item = (usize, u64, f64)> {
        let scored = self.sums.iter().enumerate().filter(|(_, (_, tokens))| *tokens > 0);
        scored.map(|(index, (nats, tokens))| (index + 1, *tokens, nats / *tokens as f64))
    }

    /// Writes the table and the picture into the folder of a run.
    ///
    /// # Errors
    /// A file that cannot be written, or a picture that cannot be drawn.
    pub(super) fn write(&self, paths: &RunPaths) -> Result<(), ExperimentError> {
        let mut table = "position,tokens,nats\n".to_owned();
        for (position, tokens, nats) in self.means() {
            let _ = writeln!(table, "{position},{tokens},{nats}");
        }
        write_atomically(&paths.root().join(TABLE), table.as_bytes())?;
        if let Some(drawn) = self.drawn().map_err(ExperimentError::failure)? {
            write_atomically(&paths.root().join(PICTURE), drawn.as_bytes())?;
        }
        Ok(())
    }

    /// The losses as a curve; none if a loss is not a number, or only one position has tokens.
    fn drawn(&self) -> Result<Option<String>, String> {
        let points: Vec<CurvePoint> =
            self.means().map(|(position, _, nats)| CurvePoint { x: position as f64, y: nats, low: nats, high: nats }).collect();
        let x = Axis::over("position in the window", points.iter().map(|point| point.x));
        let y = Axis::over("nats, mean of the test text", points.iter().map(|point| point.y));
        let (Some(x), Some(y)) = (x, y) else { return Ok(None) };
        if x.is_point() || points.iter().any(|point| !point.y.is_finite()) {
            return Ok(None);
        }
        let curve = Curve { colour: 0, points, dashed: false };
        let drawn = picture((760, 420), |area| curves(area, Some("Loss by position"), (&x, &y.with_margin()), &[curve], &[]));
        drawn.map(Some).map_err(|error: PlotError| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use heedful_attention::contract::init::Init;
    use heedful_attention::description::AnyMechanism;
    use heedful_random::RandomKey;
    use heedful_runs::run_folder::RunFolder;

    use super::*;
    use crate::model::ModelSettings;
    use crate::tasks::token_losses::CHUNK;

    #[test]
    fn losses_are_those_of_the_cross_entropy_and_stand_at_their_positions() {
        let settings = ModelSettings { layers: 1, d_model: 8, heads: 2, d_ff: 8, max_length: 8, ..ModelSettings::default() };
        let model = settings.language_model(7, &AnyMechanism::default().into()).init(&RandomKey::from_seed(1), &Device::flex());
        // More than a chunk, of which every third token stands at index 0, and the others at 2.
        let count = CHUNK + 88;
        let hidden = Init::Normal(1.0).tensor::<2>([count, 8], &RandomKey::from_seed(2), &Device::flex());
        let targets: Vec<i32> = (0..count as i32).map(|index| index * index % 7).collect();
        let columns: Vec<usize> = (0..count).map(|index| if index % 3 == 0 { 0 } else { 2 }).collect();
        let mut losses = PositionLosses::new(4);
        losses.add(&model, &hidden, &targets, &columns);
        let means: Vec<(usize, u64, f64)> = losses.means().collect();
        assert_eq!(means.iter().map(|mean| (mean.0, mean.1)).collect::<Vec<_>>(), [(1, 200), (3, 400)]);
        let at = |column: usize| {
            let rows: Vec<usize> = (0..count).filter(|row| columns[*row] == column).collect();
            let indices = TensorData::new(rows.iter().map(|row| *row as i32).collect::<Vec<_>>(), [rows.len()]);
            let own = TensorData::new(rows.iter().map(|row| targets[*row]).collect::<Vec<_>>(), [rows.len()]);
            let states = hidden.clone().select(0, Tensor::from_data(indices, &Device::flex()));
            let loss = model.cross_entropy(states, Tensor::from_data(own, &Device::flex()), None, 0.0).negative_log_likelihood;
            f64::from(loss.into_scalar::<f32>()) / rows.len() as f64
        };
        for (mean, expected) in means.iter().zip([at(0), at(2)]) {
            assert!((mean.2 - expected).abs() < 1e-5, "{mean:?} instead of {expected}");
        }
        let folder = tempfile::tempdir().unwrap();
        let paths = RunFolder::at(folder.path()).run("a", 1).unwrap();
        losses.write(&paths).unwrap();
        let table = std::fs::read_to_string(paths.root().join(TABLE)).unwrap();
        assert!(table.starts_with("position,tokens,nats\n1,200,") && table.lines().count() == 3, "{table}");
        assert!(std::fs::read_to_string(paths.root().join(PICTURE)).unwrap().contains("Loss by position"));
        assert_eq!(PositionLosses::new(4).drawn(), Ok(None));
    }
}
