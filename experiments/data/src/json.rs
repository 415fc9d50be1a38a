//! The fields of a line of JSON, each with its path for messages.

use serde_json::{Map, Value};

use super::files::TextFile;
use super::{DataError, GlueTask, Label};

/// A message quotes at most so many characters of a value.
const QUOTED: usize = 60;

/// A value inside a line.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    file: &'a TextFile,
    index: usize,
    /// Keys and list indices from the line's object on, as in `passage.questions[0].idx`.
    path: String,
    value: &'a Value,
}

/// The object that the line with this index is.
pub(crate) fn object(file: &TextFile, index: usize) -> Result<Value, DataError> {
    let parsed: Result<Map<String, Value>, _> = serde_json::from_str(&file.lines[index]);
    parsed.map(Value::Object).map_err(|cause| {
        let text = cause.to_string();
        // What follows is the line inside the line, which is always the first.
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_string();
        DataError::JsonLine { path: file.path.clone(), line: index + 1, column: cause.column(), reason }
    })
}

impl<'a> Field<'a> {
    /// The whole object of a line.
    pub(crate) fn of_line(file: &'a TextFile, index: usize, object: &'a Value) -> Self {
        Self { file, index, path: String::new(), value: object }
    }

    /// The value of a key.
    pub(crate) fn key(&self, name: &str) -> Result<Self, DataError> {
        let object = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        match object.get(name) {
            Some(value) => Ok(Self { path, value, ..*self }),
            None => Err(DataError::MissingField { path: self.file.path.clone(), line: self.index + 1, field: path }),
        }
    }

    /// The values of a list, which has at least one.
    pub(crate) fn list(&self) -> Result<Vec<Self>, DataError> {
        let values =
            self.value.as_array().filter(|values| !values.is_empty()).ok_or_else(|| self.wrong("a list with at least one value"))?;
        let field = |(index, value)| Self { path: format!("{}[{index}]", self.path), value, ..*self };
        Ok(values.iter().enumerate().map(field).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str, DataError> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    /// A text, a truth value or a whole number, as it is written.
    pub(crate) fn word(&self) -> Result<String, DataError> {
        match self.value {
            Value::String(text) => Ok(text.clone()),
            Value::Bool(value) => Ok(value.to_string()),
            Value::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
            _ => Err(self.wrong("a text, a truth value or a whole number")),
        }
    }

    /// A number.
    pub(crate) fn decimal(&self) -> Result<f64, DataError> {
        self.value.as_f64().ok_or_else(|| self.wrong("a number"))
    }

    pub(crate) fn number(&self) -> Result<usize, DataError> {
        let number = self.value.as_u64().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.wrong("a whole number from 0"))
    }

    /// The class with this label: a text, a truth value or a number.
    pub(crate) fn label(&self, task: GlueTask) -> Result<Label, DataError> {
        let written = match self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let values = task.label_values();
        let class = values.iter().position(|known| *known == written);
        class.map(Label::Class).ok_or_else(|| self.wrong(&format!("a label of {task} ({})", values.join(", "))))
    }

    /// The error of this value, which is not what was `expected`.
    pub(crate) fn wrong(&self, expected: &str) -> DataError {
        let written = self.value.to_string();
        let quoted = match written.char_indices().nth(QUOTED) {
            Some((end, _)) => format!("{}...", &written[..end]),
            None => written,
        };
        self.file.wrong(self.index, &self.path, &quoted, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(line: &str) -> TextFile {
        TextFile::from_bytes("CB/train.jsonl".into(), "train.jsonl".into(), format!("{{}}\n{line}\n").as_bytes()).unwrap()
    }

    fn of(line: &str, read: impl Fn(Field<'_>) -> Result<(), DataError>) -> String {
        let file = file(line);
        let object = object(&file, 1).unwrap();
        read(Field::of_line(&file, 1, &object)).unwrap_err().to_string()
    }

    #[test]
    fn a_line_that_is_no_object_is_an_error_with_line_and_column() {
        for (line, parts) in [
            ("", ["line 2, column 0", "EOF"]),
            ("[1]", ["line 2, column 0", "expected a map"]),
            ("{\"a\": 1,}", ["line 2, column 9", "trailing comma"]),
            ("{\"a\": 1} {}", ["line 2, column 10", "trailing characters"]),
            ("{\"a\": \"\\ud800\"}", ["line 2, column 14", "hex escape"]),
        ] {
            let message = object(&file(line), 1).unwrap_err().to_string();
            assert!(message.contains("CB/train.jsonl`") && parts.iter().all(|part| message.contains(part)), "{message}");
            assert!(!message.contains("at line"), "{message}");
        }
        let deep = "[".repeat(100_000);
        assert!(object(&file(&format!("{{\"a\": {deep}")), 1).is_err(), "nesting without end does not exhaust the stack");
    }

    fn list<'a>(field: &Field<'a>) -> Result<Vec<Field<'a>>, DataError> {
        field.key("a")?.key("b")?.list()
    }

    #[test]
    fn an_error_names_the_path_of_the_field() {
        let inner = r#"{"a": {"b": [{"c": -1}, 7]}}"#;
        for (message, part) in [
            (of(inner, |field| field.key("b").map(drop)), "line 2: no field `b`"),
            (of(inner, |field| list(&field)?[0].key("d").map(drop)), "no field `a.b[0].d`"),
            (of(inner, |field| list(&field)?[1].key("c").map(drop)), "field `a.b[1]`: `7` is not an object"),
            (of(inner, |field| list(&field)?[0].key("c")?.number().map(drop)), "`a.b[0].c`: `-1` is not a whole number"),
            (of(inner, |field| list(&field)?[0].key("c")?.text().map(drop)), "`-1` is not a text"),
            (of(inner, |field| field.key("a")?.list().map(drop)), "is not a list"),
            (of("{\"a\": []}", |field| field.key("a")?.list().map(drop)), "`[]` is not a list with at least one value"),
            (of("{\"a\": \"maybe\"}", |field| field.key("a")?.label(GlueTask::Cb).map(drop)), "`\"maybe\"` is not a label of CB (entail"),
        ] {
            assert!(message.contains("CB/train.jsonl`, line 2") && message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_message_quotes_no_more_than_the_start_of_a_long_value() {
        let long = format!("{{\"a\": \"{}\"}}", "ü".repeat(1000));
        let message = of(&long, |field| field.key("a")?.number().map(drop));
        assert!(message.contains("üü...` is not") && message.chars().count() < 200, "{message}");
    }

    #[test]
    fn labels_may_be_texts_truth_values_or_numbers() {
        for (line, task, class) in [
            (r#"{"label": "contradiction"}"#, GlueTask::Cb, 1),
            (r#"{"label": true}"#, GlueTask::BoolQ, 1),
            (r#"{"label": false}"#, GlueTask::Wic, 0),
            (r#"{"label": 1}"#, GlueTask::Copa, 1),
        ] {
            let file = file(line);
            let object = object(&file, 1).unwrap();
            assert_eq!(Field::of_line(&file, 1, &object).key("label").unwrap().label(task).unwrap(), Label::Class(class));
        }
        for value in ["2", "1.0", "true", "null", "[1]", "\"yes\""] {
            let message = of(&format!("{{\"label\": {value}}}"), |field| field.key("label")?.label(GlueTask::MultiRc).map(drop));
            assert!(message.contains("field `label`") && message.contains("a label of MultiRC (0, 1)"), "{message}");
        }
    }
}
