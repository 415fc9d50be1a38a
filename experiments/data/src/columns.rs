//! Data sets with named columns: JSON lines and Parquet, as Hugging Face stores them.
//!
//! The files of a split are `train.jsonl` (plain or `.gz`), `train.parquet`, or shards such as `train-00000-of-00002.parquet`, which are read in their order. A
//! name with dots, such as `translation.en`, leads into objects.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytes::Bytes;
use parquet::basic::{ConvertedType, Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::Type;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::DataError;
use super::bounded::limit_in_memory;
use super::files::{self, Listed, TextFile, sha256_of_lines};
use super::json::{Field, object};

/// Stems of the files of development sets.
pub(crate) const DEVELOPMENT: [&str; 4] = ["validation", "valid", "dev", "val"];
const ENDINGS: [&str; 2] = ["jsonl", "parquet"];

/// Column names of a data set by the role that a reader gives them, such as `body` for `text`. Columns without an entry have the usual names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Columns(BTreeMap<String, String>);

impl Columns {
    /// Whether all columns have the usual names.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses roles that a reader does not know, and any role where a reader has no named columns.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub fn check(&self, roles: &[&str]) -> Result<(), String> {
        if roles.is_empty() {
            return Err("this experiment reads no JSON lines or Parquet; leave it out".to_owned());
        }
        match self.0.keys().find(|role| !roles.contains(&role.as_str())) {
            Some(role) => Err(format!("`{role}` is none of the columns that are read ({}); name one of these", roles.join(", "))),
            None => Ok(()),
        }
    }

    /// The names by their roles, as a table of a configuration.
    pub fn table(&self) -> toml::Table {
        self.0.iter().map(|(role, name)| (role.clone(), name.clone().into())).collect()
    }

    /// The name of the column of a role.
    pub fn name<'c>(&'c self, role: &'c str) -> &'c str {
        self.given(role).unwrap_or(role)
    }

    /// The name that is given to the column of a role, if any is.
    pub fn given(&self, role: &str) -> Option<&str> {
        self.0.get(role).map(String::as_str)
    }

    /// The checksum of a data set that is read with these names.
    pub(crate) fn checksum(&self, sha256: String) -> String {
        match self.is_empty() {
            true => sha256,
            false => sha256_of_lines(std::iter::once(sha256).chain(self.0.iter().map(|(role, name)| format!("{role}={name}")))),
        }
    }

    /// Refuses names of columns for a folder whose files have none.
    pub(crate) fn refuse_without_columns(&self, dir: &Path) -> Result<(), DataError> {
        if self.is_empty() { Ok(()) } else { Err(DataError::NoNamedColumns { dir: dir.to_path_buf() }) }
    }
}

impl FromStr for Columns {
    type Err = String;

    /// Reads `ROLE=NAME,ROLE=NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns = BTreeMap::new();
        for pair in text.split(',').map(str::trim) {
            let named = pair.split_once('=').map(|(role, name)| (role.trim(), name.trim()));
            let Some((role, name)) = named.filter(|(role, name)| !role.is_empty() && !name.is_empty()) else {
                return Err(format!("`{pair}` is not ROLE=NAME, such as text=body"));
            };
            if columns.insert(role.to_owned(), name.to_owned()).is_some() {
                return Err(format!("`{role}` is named twice; keep one of them"));
            }
        }
        Ok(Self(columns))
    }
}

/// A file of a split, by its name without `.gz`, in the order of splits, endings and shards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part<'n> {
    split: &'n str,
    ending: &'n str,
    /// Its number and how many there are, if it is one of several.
    shard: Option<(usize, usize)>,
}

impl<'n> Part<'n> {
    /// `None` if a file of this name has no named columns.
    fn of(name: &'n str) -> Option<Self> {
        let (stem, ending) = name.rsplit_once('.').filter(|(_, ending)| ENDINGS.contains(ending))?;
        let shard = || {
            let (before, count) = stem.rsplit_once("-of-")?;
            let (split, number) = before.rsplit_once('-')?;
            // Earlier versions of Hugging Face's library wrote a checksum behind the count.
            let (count, checksum) = count.split_once('-').unwrap_or((count, ""));
            let is_known = checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_known.then_some((split, (number.parse().ok()?, count.parse().ok()?)))
        };
        Some(match shard() {
            Some((split, shard)) => Self { split, ending, shard: Some(shard) },
            None => Self { split: stem, ending, shard: None },
        })
    }
}

/// Whether a file (without `.gz`) belongs to a split and has named columns.
pub(crate) fn is_of_split(name: &str, split: &str) -> bool {
    Part::of(name).is_some_and(|part| part.split == split)
}

/// Whether a folder has a training set with named columns.
pub(crate) fn is_in(listed: &Listed) -> bool {
    listed.keys().any(|name| is_of_split(name, "train"))
}

/// The names of splits with named columns that begin with `start`, in order.
pub(crate) fn splits<'l>(listed: &'l Listed, start: &str) -> Vec<&'l str> {
    let splits = listed.keys().filter_map(|name| Some(Part::of(name)?.split)).filter(|split| split.starts_with(start));
    splits.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The paths of the one split that has one of these names, shards in their order; empty if there is no such split.
///
/// # Errors
/// [`DataError::Ambiguous`] for several splits, or one in several forms; [`DataError::Shards`] if some are missing.
pub(crate) fn find_split(listed: &Listed, names: &[&str]) -> Result<Vec<PathBuf>, DataError> {
    let parts = listed.iter().filter_map(|(name, forms)| Some((Part::of(name)?, name, forms)));
    let mut found: Vec<(Part<'_>, &String, &Vec<PathBuf>)> = parts.filter(|(part, ..)| names.contains(&part.split)).collect();
    found.sort_by_key(|(part, ..)| *part);
    let files = || found.iter().flat_map(|(.., forms)| forms.iter().cloned()).collect();
    let is_one_split = found.windows(2).all(|pair| (pair[0].0.split, pair[0].0.ending) == (pair[1].0.split, pair[1].0.ending));
    let has_whole = found.iter().any(|(part, ..)| part.shard.is_none());
    if !is_one_split || has_whole && found.len() > 1 {
        return Err(DataError::Ambiguous { part: format!("the {} set", names.join("/")), files: files() });
    }
    let shards = found.iter().filter_map(|(part, ..)| part.shard);
    if let Some((_, count)) = shards.clone().next()
        && shards.ne((0..count).map(|number| (number, count)))
    {
        return Err(DataError::Shards { files: files(), count });
    }
    found.iter().filter_map(|(_, name, forms)| files::only((*forms).clone(), name).transpose()).collect()
}

/// The files of the one split that has one of these names; none if there is no such split.
///
/// # Errors
/// Those of [`find_split`] and [`TextFile::read`].
pub(crate) fn read_split(listed: &Listed, names: &[&str]) -> Result<Option<Vec<TextFile>>, DataError> {
    let paths = find_split(listed, names)?;
    let read = paths.iter().map(|path| TextFile::read(path, "rows with named columns")).collect::<Result<Vec<_>, _>>()?;
    Ok((!read.is_empty()).then_some(read))
}

/// The same of a split that must be there.
pub(crate) fn require_split(dir: &Path, listed: &Listed, names: &[&str]) -> Result<Vec<TextFile>, DataError> {
    let expected = || names.iter().map(|name| format!("{name}.jsonl or {name}.parquet")).collect::<Vec<_>>().join(", ");
    read_split(listed, names)?.ok_or_else(|| DataError::missing(dir, format!("the {} set", names.join("/")), expected()))
}

/// A row of a file.
pub(crate) struct Row<'f> {
    file: &'f TextFile,
    pub(crate) index: usize,
    values: Value,
}

/// The rows of a file.
pub(crate) fn rows(file: &TextFile) -> impl Iterator<Item = Result<Row<'_>, DataError>> {
    (0..file.lines.len()).map(move |index| Ok(Row { file, index, values: object(file, index)? }))
}

impl Row<'_> {
    /// The value of the column of a role.
    pub(crate) fn field(&self, columns: &Columns, role: &str) -> Result<Field<'_>, DataError> {
        self.field_named(role, columns.name(role))
    }

    /// The value of a column, or of what its dots lead to.
    pub(crate) fn field_named(&self, role: &str, column: &str) -> Result<Field<'_>, DataError> {
        let row = Field::of_line(self.file, self.index, &self.values);
        let found = if self.has(column) { row.key(column) } else { column.split('.').try_fold(row, |field, key| field.key(key)) };
        found.map_err(|error| match error {
            DataError::MissingField { path, .. } => DataError::NoColumn {
                path,
                row: self.index + 1,
                role: role.to_owned(),
                column: column.to_owned(),
                found: self.values.as_object().into_iter().flat_map(|row| row.keys().cloned()).collect(),
            },
            other => other,
        })
    }

    /// Whether the row has a column of this very name.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.values.get(column).is_some()
    }

    /// The text in the column of a role.
    pub(crate) fn text(&self, columns: &Columns, role: &str) -> Result<String, DataError> {
        Ok(self.field(columns, role)?.text()?.to_owned())
    }
}

/// The rows of a Parquet file with these bytes as JSON objects. Columns of other types than texts, numbers and truth values, such as dates and lists, are left
/// out. Bytes that are no text become an object, which no reader takes for a text.
pub(crate) fn json_lines_of_parquet(path: &Path, stored: Vec<u8>) -> Result<Vec<String>, DataError> {
    // The crate reads beyond the end of some damaged pages and panics.
    catch_unwind(AssertUnwindSafe(|| rows_of_parquet(path, stored)))
        .unwrap_or_else(|_| Err(DataError::Parquet { path: path.to_path_buf(), cause: "its pages are damaged".to_owned() }))
}

fn rows_of_parquet(path: &Path, stored: Vec<u8>) -> Result<Vec<String>, DataError> {
    let damaged = |cause: ParquetError| DataError::Parquet { path: path.to_path_buf(), cause: cause.to_string() };
    let limit = limit_in_memory(stored.len());
    let reader = SerializedFileReader::new(Bytes::from(stored)).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema();
    let fields = schema.get_fields().iter().filter(|field| is_read(field)).cloned().collect();
    let read = Type::group_type_builder(schema.name()).with_fields(fields).build().map_err(damaged)?;
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for row in reader.get_row_iter(Some(read)).map_err(damaged)? {
        let line = Value::Object(object_of(&row.map_err(damaged)?)).to_string();
        bytes += (line.len() + size_of::<String>()) as u64;
        if bytes > limit {
            return Err(DataError::TooLarge { path: path.to_path_buf(), limit, remedy: "convert it to JSON lines" });
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Whether the reader of rows knows all types in a column.
fn is_read(column: &Type) -> bool {
    let basic = column.get_basic_info();
    // No reader asks for lists, such as embeddings, which may be larger than all texts.
    let is_list = matches!(basic.converted_type(), ConvertedType::LIST | ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE);
    if is_list || basic.has_repetition() && basic.repetition() == Repetition::REPEATED {
        return false;
    }
    if column.is_group() {
        return column.get_fields().iter().all(|field| is_read(field));
    }
    let converted = basic.converted_type();
    match column.get_physical_type() {
        PhysicalType::BOOLEAN | PhysicalType::FLOAT | PhysicalType::DOUBLE => true,
        PhysicalType::INT32 => {
            matches!(
                converted,
                ConvertedType::NONE
                    | ConvertedType::INT_8
                    | ConvertedType::INT_16
                    | ConvertedType::INT_32
                    | ConvertedType::UINT_8
                    | ConvertedType::UINT_16
                    | ConvertedType::UINT_32
            )
        }
        PhysicalType::INT64 => matches!(converted, ConvertedType::NONE | ConvertedType::INT_64 | ConvertedType::UINT_64),
        PhysicalType::BYTE_ARRAY => {
            matches!(converted, ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON)
        }
        PhysicalType::INT96 | PhysicalType::FIXED_LEN_BYTE_ARRAY => false,
    }
}

fn object_of(row: &parquet::record::Row) -> Map<String, Value> {
    row.get_column_iter().map(|(name, field)| (name.clone(), value_of(field))).collect()
}

fn value_of(field: &parquet::record::Field) -> Value {
    match field {
        parquet::record::Field::Group(row) => Value::Object(object_of(row)),
        parquet::record::Field::Bytes(bytes) => json!({ "bytes": bytes.len() }),
        other => other.to_json_value(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heedful_random::RandomKey;
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::files::tests::folder;
    use crate::{GlueData, GlueTask, Label, LabelledTexts, ParallelCorpus, TextCorpus};

    const REVIEWS: &[u8] = br#"{"text": "good film", "label": 1, "id": 7}
{"text": "bad film\nreally", "label": 0, "id": 8}
"#;

    /// A Parquet file with texts and labels, compressed as Hugging Face does.
    fn parquet(rows: &[(&str, i64)]) -> Vec<u8> {
        let schema = "message rows { required binary text (UTF8); required int64 label; }";
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut bytes = Vec::new();
        let mut writer =
            SerializedFileWriter::new(&mut bytes, Arc::new(parse_message_type(schema).unwrap()), Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut texts = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = rows.iter().map(|(text, _)| ByteArray::from(*text)).collect();
        texts.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        texts.close().unwrap();
        let mut labels = group.next_column().unwrap().unwrap();
        labels.typed::<Int64Type>().write_batch(&rows.iter().map(|(_, label)| *label).collect::<Vec<_>>(), None, None).unwrap();
        labels.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        bytes
    }

    fn reviews(files: &[(&str, &[u8])], columns: &str) -> Result<LabelledTexts, DataError> {
        let columns = if columns.is_empty() { Columns::default() } else { columns.parse().unwrap() };
        LabelledTexts::read_columns(folder(files).path(), &RandomKey::from_seed(0), &columns)
    }

    #[test]
    fn json_lines_and_parquet_hold_the_same_texts_whole_or_in_shards() {
        let rows = [("good film", 1), ("bad film\nreally", 0)];
        let lines = reviews(&[("train.jsonl", REVIEWS), ("validation.jsonl.gz", REVIEWS), ("test.jsonl", REVIEWS)], "").unwrap();
        let whole = parquet(&rows);
        let binary = reviews(&[("train.parquet", &whole), ("validation.parquet", &whole), ("test.parquet", &whole)], "").unwrap();
        let shards = [parquet(&rows[..1]), parquet(&rows[1..])];
        let sharded = [
            ("train-00000-of-00002.parquet", &shards[0][..]),
            ("train-00001-of-00002.parquet", &shards[1]),
            ("dev.parquet", &whole),
            ("test.parquet", &whole),
        ];
        let sharded = reviews(&sharded, "").unwrap();
        for data in [&binary, &sharded] {
            assert_eq!((&data.train, &data.dev, &data.test), (&lines.train, &lines.dev, &lines.test));
        }
        assert_eq!((lines.classes.join(" "), &*lines.train[1].text, lines.train[1].class), ("0 1".to_owned(), "bad film\nreally", 0));
        assert!(lines.sha256 != binary.sha256 && binary.sha256 != sharded.sha256, "the files differ");
    }

    #[test]
    fn columns_of_other_names_are_read_by_their_roles_and_change_the_checksum() {
        let renamed = String::from_utf8(REVIEWS.to_vec()).unwrap().replace("\"text\"", "\"body\"").replace("\"label\"", "\"topic\"");
        let files = [("train.jsonl", renamed.as_bytes()), ("dev.jsonl", renamed.as_bytes())];
        let by_topic = reviews(&files, "text=body,label=topic").unwrap();
        let by_number = reviews(&files, "text=body, label = id").unwrap();
        assert_eq!((by_topic.classes.join(" "), by_number.classes.join(" ")), ("0 1".to_owned(), "7 8".to_owned()));
        assert_ne!(by_topic.sha256, by_number.sha256);
        let error = reviews(&files, "text=body").unwrap_err().to_string();
        assert!(
            error.contains("train.jsonl`, row 1: no column `label` (it has: body, ") && error.contains("--columns label=NAME"),
            "{error}"
        );
    }

    #[test]
    fn what_is_missing_or_of_the_wrong_type_is_named_by_file_row_and_column() {
        for (row, parts) in [
            (r#"{"text": 3, "label": 1}"#, "field `text`: `3` is not a text"),
            (r#"{"text": "a", "label": null}"#, "field `label`: `null` is not a text, a truth value or a whole number"),
            (r#"{"text": "a", "label": 1.5}"#, "field `label`: `1.5` is not"),
            (r#"{"text": " ", "label": 1}"#, "field `text`: `\" \"` is not a text that is not empty"),
            (r#"{"label": 1}"#, "row 3: no column `text`"),
            ("[1]", "line 3, column 0: not a JSON object"),
        ] {
            let train = [REVIEWS, row.as_bytes(), b"\n"].concat();
            let error = reviews(&[("train.jsonl", &train), ("dev.jsonl", REVIEWS)], "").unwrap_err().to_string();
            assert!(error.contains("train.jsonl`, ") && error.contains(" 3") && error.contains(parts), "{row}: {error}");
        }
        let unknown = [REVIEWS, b"{\"text\": \"a\", \"label\": 9}\n"].concat();
        let error = reviews(&[("train.jsonl", REVIEWS), ("dev.jsonl", &unknown)], "").unwrap_err().to_string();
        assert!(error.contains("dev.jsonl`, line 3, field `label`: `9` is not a class of train.jsonl (0, 1)"), "{error}");
        let damaged = parquet(&[("a", 1)]);
        let error = reviews(&[("train.parquet", &damaged[..20]), ("dev.jsonl", REVIEWS)], "").unwrap_err().to_string();
        assert!(error.contains("train.parquet` cannot be read as Parquet") && error.contains("JSON lines"), "{error}");
        let error = reviews(&[("train.tsv", b"a\tx\n"), ("dev.tsv", b"a\tx\n")], "text=body").unwrap_err().to_string();
        assert!(error.contains("have fixed names") && error.contains("leave --columns out"), "{error}");
    }

    #[test]
    fn a_split_in_two_forms_is_refused() {
        for second in ["train.parquet", "train-00000-of-00001.jsonl", "train.jsonl.gz"] {
            let error = reviews(&[("train.jsonl", REVIEWS), (second, REVIEWS), ("dev.jsonl", REVIEWS)], "").unwrap_err();
            assert!(matches!(&error, DataError::Ambiguous { files, .. } if files.len() == 2), "{second}: {error}");
        }
        let error = reviews(&[("train.jsonl", REVIEWS), ("dev.jsonl", REVIEWS), ("validation.jsonl", REVIEWS)], "").unwrap_err();
        assert!(matches!(error, DataError::Ambiguous { .. }), "{error}");
        let error = reviews(&[("train.jsonl", REVIEWS), ("train.tsv", b"a\tx\n")], "").unwrap_err();
        assert!(matches!(error, DataError::Ambiguous { .. }), "{error}");
    }

    #[test]
    fn shards_are_read_in_the_order_of_their_numbers_and_all_of_them() {
        let row = |text: &str| format!("{{\"text\": \"{text}\", \"label\": 1}}\n").into_bytes();
        let rows: Vec<Vec<u8>> = (0..11).map(|number| row(&number.to_string())).collect();
        let names: Vec<String> = (0..11).map(|number| format!("train-{number}-of-11-0a9f.jsonl")).collect();
        let mut files: Vec<(&str, &[u8])> = names.iter().zip(&rows).map(|(name, row)| (name.as_str(), &row[..])).collect();
        files.push(("dev.jsonl", REVIEWS));
        let dir = folder(&files);
        let listed = files::list(dir.path(), "").unwrap();
        let read = read_split(&listed, &["train"]).unwrap().unwrap();
        let texts: Vec<String> = read.iter().flat_map(rows_of_file).collect();
        assert_eq!(texts, (0..11).map(|number| number.to_string()).collect::<Vec<_>>());
        for name in ["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "train-00001-of-00001.jsonl"] {
            let error = reviews(&[(name, REVIEWS), ("dev.jsonl", REVIEWS)], "").unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, DataError::Shards { .. }) && text.contains(name) && text.contains("fetch the others"), "{text}");
        }
        let foreign = [("train-00000-of-00002.jsonl", REVIEWS), ("train-00001-of-00003.jsonl", REVIEWS), ("dev.jsonl", REVIEWS)];
        assert!(matches!(reviews(&foreign, ""), Err(DataError::Shards { .. })));
    }

    fn rows_of_file(file: &TextFile) -> Vec<String> {
        rows(file).map(|row| row.unwrap().text(&Columns::default(), "text").unwrap()).collect()
    }

    #[test]
    fn bytes_of_parquet_are_no_text_and_columns_of_other_types_are_left_out() {
        let schema = "message rows { required binary text; required int32 day (DATE); required int64 label; }";
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(parse_message_type(schema).unwrap()), Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut texts = group.next_column().unwrap().unwrap();
        texts.typed::<ByteArrayType>().write_batch(&[ByteArray::from("abc")], None, None).unwrap();
        texts.close().unwrap();
        let mut days = group.next_column().unwrap().unwrap();
        days.typed::<Int32Type>().write_batch(&[1], None, None).unwrap();
        days.close().unwrap();
        let mut labels = group.next_column().unwrap().unwrap();
        labels.typed::<Int64Type>().write_batch(&[7], None, None).unwrap();
        labels.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        assert_eq!(json_lines_of_parquet(Path::new("a.parquet"), bytes.clone()).unwrap(), ["{\"label\":7,\"text\":{\"bytes\":3}}"]);
        let files = [("train.parquet", &bytes[..]), ("dev.parquet", &bytes)];
        let error = reviews(&files, "").unwrap_err().to_string();
        assert!(error.contains("line 1, field `text`: `{\"bytes\":3}` is not a text"), "{error}");
        let error = reviews(&files, "text=day").unwrap_err().to_string();
        assert!(error.contains("no column `day` (it has: label, text)"), "{error}");
    }

    #[test]
    fn damaged_parquet_is_read_or_refused_and_never_panics() {
        let whole = parquet(&[("good film", 1), ("bad film", 0)]);
        for cut in 0..whole.len() {
            assert!(json_lines_of_parquet(Path::new("a.parquet"), whole[..cut].to_vec()).is_err(), "{cut}");
        }
        for place in 0..whole.len() {
            let mut altered = whole.clone();
            altered[place] ^= 0x5a;
            let _ = json_lines_of_parquet(Path::new("a.parquet"), altered);
        }
    }

    #[test]
    fn language_model_text_has_the_lines_of_its_rows() {
        let whole = parquet(&[(" = Title = \n", 0), ("first\nsecond", 0)]);
        let dir = folder(&[("train.parquet", &whole), ("validation.jsonl", REVIEWS), ("test.jsonl", REVIEWS)]);
        let corpus = TextCorpus::read(dir.path()).unwrap();
        assert_eq!(corpus.train, [" = Title = ", "first", "second"]);
        assert_eq!(corpus.valid, ["good film", "bad film", "really"]);
        let error = TextCorpus::read(folder(&[("train.jsonl", REVIEWS), ("test.jsonl", REVIEWS)]).path()).unwrap_err().to_string();
        assert!(error.contains("validation.jsonl or validation.parquet"), "{error}");
        let error = TextCorpus::read_columns(folder(&[("a.txt", b"a\n")]).path(), &"text=a".parse().unwrap()).unwrap_err();
        assert!(matches!(error, DataError::NoNamedColumns { .. }), "{error}");
    }

    #[test]
    fn translations_stand_in_columns_of_their_languages_or_in_an_object() {
        let flat = b"{\"en\": \"a\", \"de\": \"A\"}\n{\"en\": \"\", \"de\": \"B\"}\n";
        let nested = b"{\"translation\": {\"en\": \"a\", \"de\": \"A\"}}\n{\"translation\": {\"en\": \"\", \"de\": \"B\"}}\n";
        let other = b"{\"src\": \"a\", \"out\": {\"de\": \"A\"}}\n{\"src\": \"\", \"out\": {\"de\": \"B\"}}\n";
        let read = |rows: &[u8], columns: &str| {
            let columns = if columns.is_empty() { Columns::default() } else { columns.parse().unwrap() };
            let dir = folder(&[("train.jsonl", rows), ("validation.jsonl", rows), ("test_2016.jsonl", rows)]);
            ParallelCorpus::read_columns(dir.path(), "en", "de", &columns)
        };
        let corpus = read(flat, "").unwrap();
        assert_eq!((corpus.train.len(), corpus.skipped[0].lines.clone(), corpus.tests[0].1.len()), (1, vec![2], 2));
        assert_eq!((&*corpus.tests[0].0, &*corpus.train[0].target), ("test_2016", "A"));
        let named = b"{\"source\": \"a\", \"target\": \"A\"}\n{\"source\": \"\", \"target\": \"B\"}\n";
        for same in [read(nested, ""), read(other, "source=src,target=out.de"), read(named, "source=source,target=target")] {
            let same = same.unwrap();
            assert_eq!((&same.train, &same.valid, &same.tests), (&corpus.train, &corpus.valid, &corpus.tests));
        }
        let both = folder(&[("train.jsonl", &flat[..]), ("train.en", b"a\n"), ("train.de", b"A\n"), ("dev.jsonl", flat)]);
        assert!(matches!(ParallelCorpus::read(both.path(), "en", "de"), Err(DataError::Ambiguous { .. })));
        let error = read(flat, "source=fr").unwrap_err().to_string();
        assert!(error.contains("row 1: no column `fr`") && error.contains("--columns source=NAME"), "{error}");
    }

    #[test]
    fn tasks_of_glue_are_read_as_hugging_face_stores_them() {
        let rows = b"{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 1, \"idx\": 4}\n";
        let files = [("MRPC/train.jsonl", &rows[..]), ("MRPC/validation.jsonl", rows), ("MRPC/test.jsonl", rows)];
        let data = GlueData::read(folder(&files).path(), GlueTask::Mrpc).unwrap();
        assert_eq!((data.train[0].label, &*data.train[0].first, data.train[0].second.as_deref()), (Label::Class(1), "a", Some("b")));
        assert_eq!((data.dev[0].1.len(), data.test[0].1[0].index), (1, 4));
        let score = b"{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 3.8}\n";
        let data = GlueData::read(folder(&[("train.jsonl", score), ("dev.jsonl", score)]).path(), GlueTask::StsB).unwrap();
        assert_eq!(data.train[0].label, Label::Score(3.8));
        let entailed = b"{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": \"neutral\"}\n";
        let files = [("train.jsonl", &entailed[..]), ("validation_matched.jsonl", entailed), ("validation_mismatched.jsonl", entailed)];
        let data = GlueData::read(folder(&files).path(), GlueTask::Mnli).unwrap();
        assert_eq!((data.train[0].label, data.dev.len()), (Label::Class(1), 2));
        for (rows, task, part) in [
            (&rows[..], GlueTask::Cola, "no column `sentence`"),
            (score, GlueTask::Mrpc, "field `label`: `3.8` is not"),
            (
                b"{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": -1}\n",
                GlueTask::Mrpc,
                "`-1` is not a label of MRPC (0, 1, or its index)",
            ),
            (b"{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 6}\n", GlueTask::StsB, "`6` is not a score from 0 to 5"),
        ] {
            let error = GlueData::read(folder(&[("train.jsonl", rows), ("dev.jsonl", rows)]).path(), task).unwrap_err().to_string();
            assert!(error.contains("train.jsonl`, ") && error.contains(part), "{error}");
        }
        let both = [("train.jsonl", &rows[..]), ("train.tsv", b"Quality\t#1 String\t#2 String\n1\ta\tb\n"), ("dev.jsonl", rows)];
        assert!(matches!(GlueData::read(folder(&both).path(), GlueTask::Mrpc), Err(DataError::Ambiguous { .. })));
    }

    #[test]
    fn names_of_columns_are_read_and_refused() {
        let columns: Columns = "text=body, label=a.b".parse().unwrap();
        assert_eq!((columns.name("text"), columns.name("label"), columns.name("idx")), ("body", "a.b", "idx"));
        assert!(columns.check(&["label", "text"]).is_ok());
        assert!(columns.check(&[]).unwrap_err().contains("reads no JSON lines or Parquet"));
        assert!(columns.check(&["text"]).unwrap_err().contains("`label` is none of the columns that are read (text)"));
        for (text, part) in
            [("text", "not ROLE=NAME"), ("text=", "not ROLE=NAME"), ("a=b,,c=d", "not ROLE=NAME"), ("a=b,a=c", "named twice")]
        {
            assert!(text.parse::<Columns>().unwrap_err().contains(part), "{text}");
        }
    }
}
