//! Escapes foreign text: names from files can contain characters that Markdown, HTML or LaTeX read as markup, or a terminal as commands.

use std::fmt::Write;

/// The text on one line: control characters, line ends among them, become blanks.
pub fn one_line(text: &str) -> String {
    // Some renderers end a line at these as well.
    let is_end = |character: char| character.is_control() || ['\u{2028}', '\u{2029}'].contains(&character);
    text.chars().map(|character| if is_end(character) { ' ' } else { character }).collect()
}

/// Text that Markdown, and HTML made of it, shows as it is, also in a cell of a table.
pub fn markdown(text: &str) -> String {
    let characters: Vec<char> = one_line(text).chars().collect();
    let mut escaped = String::with_capacity(text.len());
    for (index, &character) in characters.iter().enumerate() {
        let near = |at: Option<usize>| at.and_then(|at| characters.get(at)).copied();
        let (before, after) = (near(index.checked_sub(1)), near(Some(index + 1)));
        let is_within_a_word = || [before, after].iter().all(|near| near.is_some_and(char::is_alphanumeric));
        match character {
            '\\' | '`' | '*' | '$' | '~' => escaped.extend(['\\', character]),
            // Brackets alone are no link.
            ']' if after.is_some_and(|after| "([:".contains(after)) => escaped.push_str("\\]"),
            '_' if !is_within_a_word() => escaped.push_str("\\_"),
            '|' => escaped.push_str("&#124;"),
            '<' if after.is_some_and(|after| after.is_ascii_alphabetic() || "/!?".contains(after)) => escaped.push_str("&lt;"),
            '&' if after.is_some_and(|after| after.is_ascii_alphanumeric() || after == '#') => escaped.push_str("&amp;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The text as a code span of Markdown, in a fence that is longer than any within it.
pub fn code(text: &str) -> String {
    let text = one_line(text);
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Text that LaTeX prints as it is.
pub fn latex(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        match character {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                let _ = write!(escaped, "\\{character}");
            }
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '<' => escaped.push_str("$<$"),
            '>' => escaped.push_str("$>$"),
            '±' => escaped.push_str("$\\pm$"),
            '↑' => escaped.push_str("$\\uparrow$"),
            '↓' => escaped.push_str("$\\downarrow$"),
            '†' => escaped.push_str("\\dag{}"),
            '–' => escaped.push_str("--"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Columns padded to equal width, flush left.
pub fn left_aligned(rows: &[Vec<String>]) -> String {
    padded(rows, usize::MAX).0.concat()
}

/// Columns padded to equal width, the first flush left and the others flush right; a rule below the first row.
pub fn aligned(cells: &[Vec<String>]) -> String {
    let (mut lines, width) = padded(cells, 1);
    if !lines.is_empty() {
        lines.insert(1, format!("{}\n", "─".repeat(width)));
    }
    lines.concat()
}

/// A line of each row, with columns padded to equal width, from the column `right` on flush right; and the width of all.
fn padded(rows: &[Vec<String>], right: usize) -> (Vec<String>, usize) {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cell = |(column, (cell, width)): (usize, (&String, &usize))| match column < right {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    (rows.iter().map(line).collect(), widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1))
}

/// A Markdown table whose columns after the first are aligned by `rule` (`---` left, `---:` right).
pub fn markdown_table(cells: &[Vec<String>], rule: &str) -> String {
    let line = |row: &[String]| {
        let escaped: Vec<String> = row.iter().map(|cell| one_line(cell).replace('|', "\\|")).collect();
        format!("| {} |\n", escaped.join(" | "))
    };
    let Some((heading, rows)) = cells.split_first() else { return String::new() };
    let rule: Vec<&str> = (0..heading.len()).map(|column| if column == 0 { "---" } else { rule }).collect();
    let mut text = format!("{}| {} |\n", line(heading), rule.join(" | "));
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// A table with two blanks between its columns, the last of which is broken at blanks into as many lines as it needs to stay within `width`.
pub fn columns(width: usize, head: &[&str], rows: Vec<Vec<String>>) -> String {
    let head: Vec<String> = head.iter().map(|&title| title.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let last = rows[0].len() - 1;
    let widths: Vec<usize> = (0..last).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()).collect();
    let start: usize = widths.iter().map(|width| width + 2).sum();
    let mut lines = Vec::new();
    for row in &rows {
        let mut line: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
        for word in row[last].split(' ') {
            let length = line.chars().count();
            if length > start && length + word.chars().count() > width {
                lines.push(line.trim_end().to_owned());
                line = " ".repeat(start);
            }
            line.push_str(word);
            line.push(' ');
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A name with what each kind of text would take for something else.
    pub(crate) const HOSTILE: &str = "</script><img src=x>|../x\\input{a}$1$`b`**c**_d_[e](f)\n# g\u{1b}[31m&amp;";

    /// Asserts that a text has all of these parts.
    #[track_caller]
    pub(crate) fn assert_holds(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    /// Asserts that a Markdown text that shows [`HOSTILE`] holds none of its markup.
    #[track_caller]
    pub(crate) fn assert_harmless(markdown: &str) {
        for part in ["<script", "</script", "<img", "|../x", "\n# g", "\u{1b}", "**c**", "[e](f)", " `b`", "$1$", "_d_["] {
            assert!(!markdown.contains(part), "{part:?} in\n{markdown}");
        }
    }

    #[test]
    fn hostile_names_are_shown_and_nothing_else() {
        let shown = markdown(HOSTILE);
        assert_harmless(&shown);
        assert_eq!(shown, "&lt;/script>&lt;img src=x>&#124;../x\\\\input{a}\\$1\\$\\`b\\`\\*\\*c\\*\\*\\_d\\_[e\\](f) # g [31m&amp;amp;");
        assert_eq!(
            latex(HOSTILE),
            "$<$/script$>$$<$img src=x$>$|../x\\textbackslash{}input\\{a\\}\\$1\\$`b`**c**\\_d\\_[e](f) \\# g [31m\\&amp;"
        );
    }

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in
            ["synthesizer-random+dot-product", "test_2016_flickr/BLEU", "accuracy (%) ↑", "p < 0.05", "lsh@sparse", "AT&T, R & D", "a.b#c!"]
        {
            let expected = name.replace("AT&T", "AT&amp;T");
            assert_eq!(markdown(name), expected);
        }
    }

    #[test]
    fn code_is_fenced_by_more_than_it_holds() {
        assert_eq!(code("a|b"), "`a|b`");
        assert_eq!(code("a``b"), "```a``b```");
        assert_eq!(code("`a"), "`` `a ``");
        assert_eq!(code("a\nb"), "`a b`");
        assert_eq!(code(""), "``");
    }
}
