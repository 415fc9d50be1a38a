//! Tasks of GLUE in named columns, as Hugging Face has them: the sentences, and a label that is a number, the class by its index where there are classes.

use super::super::files::TextFile;
use super::super::{Columns, columns};
use super::{DataError, Example, GlueTask, Label, Target, Unlabelled};
use crate::json::Field;

/// The columns with the texts of a task.
fn texts(task: GlueTask) -> &'static [&'static str] {
    match task {
        GlueTask::Mrpc => &["sentence1", "sentence2"],
        GlueTask::Mnli => &["premise", "hypothesis"],
        other => other.sentence_columns(),
    }
}

/// The labelled rows of a file.
pub(super) fn labelled(file: &TextFile, task: GlueTask, columns: &Columns) -> Result<Vec<Example>, DataError> {
    let example = |row: columns::Row<'_>| {
        let (first, second) = sentences(&row, task, columns)?;
        Ok(Example::new(first, second, label(&row.field(columns, "label")?, task)?))
    };
    columns::rows(file).map(|row| example(row?)).collect()
}

/// The rows of a test file, whose labels are not read. Where they have no numbers, they are counted from `start` on.
pub(super) fn unlabelled(file: &TextFile, task: GlueTask, columns: &Columns, start: usize) -> Result<Vec<Unlabelled>, DataError> {
    let example = |row: columns::Row<'_>| {
        let (first, second) = sentences(&row, task, columns)?;
        let index = if row.has("idx") { row.field(&Columns::default(), "idx")?.number()? } else { start + row.index };
        Ok(Unlabelled::new(index, first, second))
    };
    columns::rows(file).map(|row| example(row?)).collect()
}

fn sentences(row: &columns::Row<'_>, task: GlueTask, columns: &Columns) -> Result<(String, Option<String>), DataError> {
    let [first, second @ ..] = texts(task) else { unreachable!("each task has a text") };
    Ok((row.text(columns, first)?, second.first().map(|second| row.text(columns, second)).transpose()?))
}

fn label(field: &Field<'_>, task: GlueTask) -> Result<Label, DataError> {
    match task.target() {
        Target::Range(least, most) => {
            let score = field.decimal()? as f32;
            let is_within = (least..=most).contains(&score);
            if is_within { Ok(Label::Score(score)) } else { Err(field.wrong(&format!("a score from {least} to {most}"))) }
        }
        Target::Classes(count) => {
            let (word, values) = (field.word()?, task.label_values());
            let class = values.iter().position(|known| *known == word).or_else(|| word.parse().ok().filter(|class| *class < count));
            class.map(Label::Class).ok_or_else(|| field.wrong(&format!("a label of {task} ({}, or its index)", values.join(", "))))
        }
    }
}
