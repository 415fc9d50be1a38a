//! Mapping from model parameters to file tensors, with their layouts.

use std::collections::BTreeMap;

use heedful_attention::description::AnyMechanism;

use super::error::PretrainedError;
use super::shards::Shards;
use crate::block::layout::LayerAttention;

/// Rows and columns that are transposed at once, within the cache.
const TILE: usize = 32;

/// Layout of a parameter in its tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the same order and shape.
    Same,
    /// `[outputs, inputs]` of a parameter `[inputs, outputs]`, as in PyTorch's `Linear`.
    Transposed,
    /// One of three parts along the last axis: queries, keys and values in GPT-2's `Conv1D`, which is `[inputs, outputs]`.
    Third(usize),
    /// The same order, with an extra leading axis of 1.
    OneMore,
    /// Rows from this one on; earlier rows are not part of the parameter.
    RowsFrom(usize),
    /// The single row of a tensor, copied to both rows of the parameter.
    OneOfTwo,
    /// The same order and shape; several parameters share the numbers.
    Shared,
    /// As [transposed](Self::Transposed), multiplied by the root of this number.
    TimesRoot(usize),
    /// The same order and shape, divided by the root of this number.
    OverRoot(usize),
    /// `[outputs, channels, size, size]` of a parameter `[channels size size, outputs]`: a convolution over patches.
    Patches {
        /// Channels per pixel.
        channels: usize,
        /// Rows and columns of a patch.
        size: usize,
    },
}

impl Place {
    /// Shape of the tensor for a parameter of this shape.
    pub(super) fn shape(self, parameter: &[usize]) -> Vec<usize> {
        match (self, parameter) {
            (Self::Transposed | Self::TimesRoot(_), &[inputs, outputs]) => vec![outputs, inputs],
            (Self::Third(_), [others @ .., last]) => [others, &[3 * last]].concat(),
            (Self::OneMore, dims) => [&[1], dims].concat(),
            (Self::RowsFrom(first), &[rows, width]) => vec![first + rows, width],
            (Self::OneOfTwo, &[_, width]) => vec![1, width],
            (Self::Patches { channels, size }, &[_, outputs]) => vec![outputs, channels, size, size],
            (_, dims) => dims.to_vec(),
        }
    }

    /// Numbers of a parameter of this shape, from those of its tensor.
    pub(super) fn read(self, values: Vec<f32>, parameter: &[usize]) -> Vec<f32> {
        match (self, parameter) {
            (Self::Transposed | Self::Patches { .. }, &[inputs, outputs]) => transposed(&values, outputs, inputs),
            (Self::Third(part), [.., width]) => {
                values.chunks_exact(3 * width).flat_map(|row| &row[part * width..][..*width]).copied().collect()
            }
            (Self::RowsFrom(first), &[_, width]) => values[first * width..].to_vec(),
            (Self::OneOfTwo, _) => values.repeat(2),
            (Self::TimesRoot(_), &[inputs, outputs]) => self.scaled(transposed(&values, outputs, inputs)),
            (Self::OverRoot(_), _) => self.scaled(values),
            _ => values,
        }
    }

    /// Factor of the tensor's numbers.
    fn factor(self) -> f64 {
        match self {
            Self::TimesRoot(of) => (of as f64).sqrt(),
            Self::OverRoot(of) => (of as f64).powf(-0.5),
            _ => 1.0,
        }
    }

    fn scaled(self, mut values: Vec<f32>) -> Vec<f32> {
        values.iter_mut().for_each(|value| *value = (f64::from(*value) * self.factor()) as f32);
        values
    }

    /// Tensor numbers from those of a parameter in the same layout: the previous ones if they convert to the same values, so that unchanged weights are written
    /// identically.
    fn unscaled(self, values: Vec<f32>, tensor: &mut Vec<f32>) {
        tensor.resize(values.len(), 0.0);
        for (old, value) in tensor.iter_mut().zip(values) {
            if (f64::from(*old) * self.factor()) as f32 != value {
                *old = (f64::from(value) / self.factor()) as f32;
            }
        }
    }

    /// Whether writing needs the previous numbers of the tensor: some are not part of its parameter, or conversion rounds them.
    pub(super) fn is_part(self) -> bool {
        matches!(self, Self::RowsFrom(_) | Self::TimesRoot(_) | Self::OverRoot(_))
    }

    /// Writes the numbers of a parameter of this shape into its tensor; `tensor` contains its previous numbers if [the parameter is a part](Self::is_part).
    pub(super) fn write(self, values: Vec<f32>, parameter: &[usize], tensor: &mut Vec<f32>) {
        match (self, parameter) {
            (Self::Transposed | Self::Patches { .. }, &[inputs, outputs]) => *tensor = transposed(&values, inputs, outputs),
            (Self::Third(part), [.., width]) => {
                tensor.resize(3 * values.len(), 0.0);
                for (row, values) in tensor.chunks_exact_mut(3 * width).zip(values.chunks_exact(*width)) {
                    row[part * width..][..*width].copy_from_slice(values);
                }
            }
            (Self::RowsFrom(first), &[_, width]) => {
                tensor.resize(first * width + values.len(), 0.0);
                tensor[first * width..].copy_from_slice(&values);
            }
            (Self::OneOfTwo, &[_, width]) => *tensor = values[..width].to_vec(),
            (Self::TimesRoot(_), &[inputs, outputs]) => self.unscaled(transposed(&values, inputs, outputs), tensor),
            (Self::OverRoot(_), _) => self.unscaled(values, tensor),
            _ => *tensor = values,
        }
    }
}

/// The transpose of a matrix `[rows, columns]`.
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut result = vec![0.0; values.len()];
    for first_row in (0..rows).step_by(TILE) {
        for first_column in (0..columns).step_by(TILE) {
            for row in first_row..rows.min(first_row + TILE) {
                for column in first_column..columns.min(first_column + TILE) {
                    result[column * rows + row] = values[row * columns + column];
                }
            }
        }
    }
    result
}

/// A parameter and its tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Name of the tensor in the files; in messages about missing tensors, the first alternative.
    pub(super) tensor: String,
    /// Layout of its numbers.
    pub(super) place: Place,
}

/// A row of an architecture's list: path of a parameter in the model, name of its tensor, and layout. In layer rows `{}` is the layer number, and a final `*`
/// stands for weight and bias of a map or both parameters of a norm. A bias is not transposed.
pub(super) type Row = (&'static str, &'static str, Place);

/// Expands a row.
fn spelt_out(&(parameter, tensor, place): &Row) -> Vec<(String, String, Place)> {
    let Some((parameter, tensor)) = parameter.strip_suffix('*').zip(tensor.strip_suffix('*')) else {
        return vec![(parameter.to_owned(), tensor.to_owned(), place)];
    };
    let names = if parameter.ends_with("norm.") { ["gamma", "beta"] } else { ["weight", "bias"] };
    let of_bias = if place == Place::Transposed { Place::Same } else { place };
    let row = |(name, of_file, place)| (format!("{parameter}{name}"), format!("{tensor}{of_file}"), place);
    [(names[0], "weight", place), (names[1], "bias", of_bias)].map(row).into()
}

/// A tensor that must equal another if a file contains both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tied {
    pub(super) tensor: &'static str,
    pub(super) original: &'static str,
    /// Remedy if they differ.
    pub(super) remedy: &'static str,
}

/// All parameters of a model and their tensors.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// By the paths of the parameters.
    pub(super) entries: BTreeMap<String, Entry>,
    /// Tensors that repeat others.
    pub(super) copies: Vec<Tied>,
}

/// Names of an architecture's tensors in files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// Prefix of all names in files of the whole model, omitted in files of its body.
    pub(super) prefix: &'static str,
    /// Alternative name parts in other files: name here, and there.
    pub(super) others: &'static [&'static [(&'static str, &'static str)]],
    /// Whether a tensor is not a parameter.
    pub(super) is_skipped: fn(&str) -> bool,
}

impl Names {
    /// Name of a tensor in the files: that of the list, or an existing alternative.
    fn of(&self, name: &str, files: &Shards) -> String {
        let rename =
            |name: &str, parts: &[(&str, &str)]| parts.iter().fold(name.to_owned(), |name, (here, there)| name.replace(here, there));
        let renamed = std::iter::once(name.to_owned()).chain(self.others.iter().map(|parts| rename(name, parts)));
        let both = |name: String| {
            let short = name.strip_prefix(self.prefix).map(str::to_owned);
            [Some(name), short].into_iter().flatten()
        };
        renamed.flat_map(both).find(|candidate| files.has(candidate)).unwrap_or_else(|| name.to_owned())
    }

    /// Adds rows outside of layers.
    pub(super) fn add(&self, table: &mut Table, rows: &[Row], files: &Shards) {
        for &(parameter, tensor, place) in rows {
            table.entries.insert(parameter.to_owned(), Entry { tensor: self.of(tensor, files), place });
        }
    }

    /// Adds the rows of the layers of a model.
    pub(super) fn add_layers(&self, table: &mut Table, count: usize, attention: &LayerAttention, rows: &[&[Row]], files: &Shards) {
        for layer in 0..count {
            let scores = scores(attention.at(layer));
            rows.iter().for_each(|rows| self.add_layer(table, rows, layer, &scores, files));
        }
    }

    /// Adds the rows of a layer. The path of its scores replaces `logits` in the rows.
    pub(super) fn add_layer(&self, table: &mut Table, rows: &[Row], layer: usize, scores: &str, files: &Shards) {
        let number = layer.to_string();
        for (parameter, tensor, place) in rows.iter().flat_map(spelt_out) {
            let parameter = parameter.replace("{}", &number).replace("logits", scores);
            table.entries.insert(parameter, Entry { tensor: self.of(&tensor.replace("{}", &number), files), place });
        }
    }
}

/// Path of a layer's scores: the name of the mechanism, or of several nested ones.
fn scores(attention: &AnyMechanism) -> String {
    let members = attention.members();
    if let ([member], false) = (&members[..], attention.card().kind.has_module()) {
        return scores(member);
    }
    let inner: String = members.iter().map(|member| scores(member).replacen("logits", ".logits.0", 1)).collect();
    format!("logits.{}{inner}", attention.card().variant)
}

/// Whether a tensor belongs to an output, of classes or of pre-training.
pub(super) fn is_of_output(tensor: &str) -> bool {
    ["classifier.", "cls.", "lm_head.", "score."].iter().any(|start| tensor.starts_with(start))
}

impl Table {
    /// Replaces a prefix of the parameter paths.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let renamed = |path: String| path.strip_prefix(from).map(|rest| format!("{to}{rest}")).unwrap_or(path);
        self.entries = std::mem::take(&mut self.entries).into_iter().map(|(path, entry)| (renamed(path), entry)).collect();
    }

    /// File tensors that must equal others, and the names of these in the files.
    pub(super) fn copies_in(&self, names: &Names, files: &Shards) -> Vec<(Tied, String)> {
        let pairs = self.copies.iter().map(|copy| (*copy, names.of(copy.original, files)));
        pairs.filter(|(copy, original)| files.has(copy.tensor) && files.has(original)).collect()
    }

    /// Checks that all file tensors are parameters or known non-parameters. With `has_new_output`, output tensors need no parameter.
    ///
    /// # Errors
    /// If a tensor is neither, or differs from the tensor that it must equal.
    pub(super) fn check(&self, names: &Names, files: &Shards, has_new_output: bool) -> Result<(), PretrainedError> {
        let mut unused: Vec<String> = files.names().filter(|name| !(names.is_skipped)(name)).map(str::to_owned).collect();
        unused.retain(|name| !self.entries.values().any(|entry| entry.tensor == *name));
        for (Tied { tensor, remedy, .. }, original) in self.copies_in(names, files) {
            if files.bytes(tensor)? != files.bytes(&original)? {
                let path = files.path(tensor).into();
                let reason = format!("differs from `{original}`, which it must equal in this model");
                return Err(PretrainedError::Contradiction { path, tensor: tensor.into(), reason, remedy });
            }
            unused.retain(|name| name != tensor);
        }
        unused.retain(|name| !(has_new_output && is_of_output(name)));
        if unused.is_empty() {
            return Ok(());
        }
        let remedy = "take config.json and weights of the same model";
        Err(PretrainedError::Unused { path: files.list.clone(), tensors: unused, remedy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_to_the_same_places() {
        let numbers = |count: usize| -> Vec<f32> { (0..count).map(|number| number as f32).collect() };
        for place in [Place::Same, Place::Transposed, Place::OneMore, Place::Patches { channels: 3, size: 2 }] {
            let parameter = [12, 35];
            let tensor = numbers(place.shape(&parameter).iter().product());
            let mut written = Vec::new();
            place.write(place.read(tensor.clone(), &parameter), &parameter, &mut written);
            assert_eq!(written, tensor, "{place:?}");
        }
        let mut tensor = numbers(5 * 3);
        let read = Place::RowsFrom(2).read(tensor.clone(), &[3, 3]);
        assert_eq!(read, tensor[6..]);
        Place::RowsFrom(2).write(read.iter().map(|number| -number).collect(), &[3, 3], &mut tensor);
        assert_eq!((&tensor[..6], tensor[6]), (&numbers(6)[..], -6.0));
        for place in [Place::TimesRoot(8), Place::OverRoot(12)] {
            let tensor: Vec<f32> = numbers(12).iter().map(|number| number / 7.0).collect();
            let read = place.read(tensor.clone(), &[4, 3]);
            let mut same = tensor.clone();
            place.write(read.clone(), &[4, 3], &mut same);
            assert_eq!(same, tensor, "{place:?}");
            place.write(read.iter().map(|number| 2.0 * number).collect(), &[4, 3], &mut same);
            assert!(same.iter().zip(&tensor).all(|(new, old)| (new - 2.0 * old).abs() <= 1e-6), "{place:?}");
        }
        let mut written = Vec::new();
        assert_eq!(Place::OneOfTwo.read(numbers(2), &[2, 2]), [0.0, 1.0, 0.0, 1.0]);
        Place::OneOfTwo.write(vec![5.0, 6.0, 7.0, 8.0], &[2, 2], &mut written);
        assert_eq!(written, [5.0, 6.0]);
        for parameter in [&[4, 5][..], &[5]] {
            let tensor = numbers(Place::Third(0).shape(parameter).iter().product());
            let mut written = Vec::new();
            for part in [2, 0, 1] {
                Place::Third(part).write(Place::Third(part).read(tensor.clone(), parameter), parameter, &mut written);
            }
            assert_eq!(written, tensor, "{parameter:?}");
        }
    }

    #[test]
    fn a_matrix_of_many_tiles_is_transposed() {
        let (rows, columns) = (2 * TILE + 3, TILE + 1);
        let matrix: Vec<f32> = (0..rows * columns).map(|number| number as f32).collect();
        let result = transposed(&matrix, rows, columns);
        for (row, column) in [(0, 0), (5, 32), (66, 1), (rows - 1, columns - 1)] {
            assert_eq!(result[column * rows + row], matrix[row * columns + column], "{row}, {column}");
        }
        assert_eq!(transposed(&result, columns, rows), matrix);
    }
}
