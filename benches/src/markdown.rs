//! Numbers and tables as text.

use std::fmt::Write;

/// Three digits that count.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A table of Markdown with columns of equal width.
///
/// # Panics
/// If a row has fewer cells than the header.
pub fn table<H: AsRef<str>, R: AsRef<[String]>>(header: &[H], rows: &[R]) -> String {
    // A line break or a bar of a foreign message would end the cell.
    let plain = |cell: &str| cell.replace(['\n', '\r'], " ").replace('|', "/");
    let header: Vec<String> = header.iter().map(|cell| plain(cell.as_ref())).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.as_ref().iter().map(|cell| plain(cell)).collect()).collect();
    let width = |column: usize| rows.iter().chain([&header]).map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
    };
    line(&header);
    line(&widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>());
    rows.iter().for_each(|row| line(row));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let text = table(&["a", "time"], &[["first".to_owned(), "1|2".to_owned()]]);
        assert_eq!(text, "| a     | time |\n| ----- | ---- |\n| first | 1/2  |\n");
    }

    #[test]
    fn three_digits_count() {
        assert_eq!([0.0123, 1.234, 12.34, 123.4].map(significant), ["0.012", "1.23", "12.3", "123"]);
    }
}
