//! The tables of GLUE's task MRPC, made from Microsoft's two texts by the rule of GLUE's download script.
//!
//! `dev_ids.tsv` names the pairs of the development set; all others of the training text are for training. The test table has an index for the label.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use heedful_host::whole_files::FileError;

use super::fetch::FetchError;

const DEV_IDS: &str = "dev_ids.tsv";
const TRAIN: &str = "msr_paraphrase_train.txt";
const TEST: &str = "msr_paraphrase_test.txt";
const TEST_HEADER: &str = "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n";

/// Whether a file is one that the tables are made from.
pub(super) fn is_source(path: &Path) -> bool {
    path.parent() == Some(Path::new("MRPC"))
        && path.file_name().is_some_and(|name| [DEV_IDS, TRAIN, TEST].iter().any(|source| name == *source))
}

/// Paths in the folder of the data set and text of `train.tsv`, `dev.tsv` and `test.tsv`.
pub(super) fn tables(root: &Path) -> Result<[(&'static str, String); 3], FetchError> {
    let dir = root.join("MRPC");
    let dev_ids = read(&dir.join(DEV_IDS))?;
    let dev_ids: HashSet<&str> = dev_ids.lines().map(|line| line.trim_end_matches('\r')).collect();
    let (mut train, mut dev, mut test) = (String::new(), String::new(), TEST_HEADER.to_string());
    let path = dir.join(TRAIN);
    for (index, row) in rows(&path, &read(&path)?)?.into_iter().enumerate() {
        let line = format!("{}\n", row.join("\t"));
        let is_dev = dev_ids.contains(row[1..3].join("\t").as_str());
        if index == 0 || !is_dev {
            train.push_str(&line);
        }
        if index == 0 || is_dev {
            dev.push_str(&line);
        }
    }
    let path = dir.join(TEST);
    for (index, row) in rows(&path, &read(&path)?)?.iter().skip(1).enumerate() {
        test.push_str(&format!("{index}\t{}\n", row[1..].join("\t")));
    }
    Ok([("MRPC/train.tsv", train), ("MRPC/dev.tsv", dev), ("MRPC/test.tsv", test)])
}

fn read(path: &Path) -> Result<String, FetchError> {
    let bytes = fs::read(path).map_err(|source| FileError::read(path, source))?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        FetchError::Form { path: path.to_path_buf(), line, found: "not UTF-8".to_string() }
    })
}

/// The rows of a text with its header, five fields each.
fn rows(path: &Path, text: &str) -> Result<Vec<Vec<String>>, FetchError> {
    let row = |(index, line): (usize, &str)| {
        let fields: Vec<String> = line.trim_end_matches('\r').split('\t').map(str::to_string).collect();
        if fields.len() == 5 {
            return Ok(fields);
        }
        let found = format!("{} tab-separated fields where 5 belong", fields.len());
        Err(FetchError::Form { path: path.to_path_buf(), line: index + 1, found })
    };
    text.strip_suffix('\n').unwrap_or(text).split('\n').enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::refused;

    #[test]
    fn the_tables_follow_the_list_of_development_pairs() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("MRPC");
        fs::create_dir(&dir).unwrap();
        let windows = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n";
        fs::write(dir.join(TRAIN), format!("{windows}1\t7\t8\ta \"b\tc\r\n0\t9\t10\td\te\r\n")).unwrap();
        fs::write(dir.join(TEST), format!("{windows}1\t1\t2\tx\ty\r\n0\t3\t4\tz\tw")).unwrap();
        fs::write(dir.join(DEV_IDS), "9\t10\n").unwrap();
        let header = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
        let tables = tables(folder.path()).unwrap();
        assert_eq!(tables[0], ("MRPC/train.tsv", format!("{header}1\t7\t8\ta \"b\tc\n")));
        assert_eq!(tables[1], ("MRPC/dev.tsv", format!("{header}0\t9\t10\td\te\n")));
        assert_eq!(tables[2], ("MRPC/test.tsv", format!("{TEST_HEADER}0\t1\t2\tx\ty\n1\t3\t4\tz\tw\n")));
    }

    #[test]
    fn a_row_of_another_form_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("MRPC");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(TRAIN), "a\tb\tc\td\te\n1\t2\n").unwrap();
        fs::write(dir.join(DEV_IDS), "").unwrap();
        refused(tables(folder.path()), &[TRAIN, "line 2", "2 tab-separated"]);
    }
}
