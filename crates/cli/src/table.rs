//! Tables as the commands print them: a header, columns two spaces apart, numbers to the right.

use plimsoll_core::shown;
use std::fmt;

/// A table that is filled row by row and then printed.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A column with a name that starts with `>` is aligned to the right.
    pub fn new(header: &[&'static str]) -> Table {
        Table { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; as many cells as there are columns. A name in it may be a tenant's: what would steer a terminal or
    /// begin another line stands there escaped.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells: Vec<String> = cells.into().iter().map(|cell| shown(cell).into_owned()).collect();
        debug_assert_eq!(cells.len(), self.header.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// Whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn line(&self, out: &mut fmt::Formatter<'_>, cells: &[&str], widths: &[usize]) -> fmt::Result {
        let mut line = String::new();
        for ((cell, &width), header) in cells.iter().zip(widths).zip(&self.header) {
            if header.starts_with('>') {
                line.push_str(&format!("{cell:>width$}  "));
            } else {
                line.push_str(&format!("{cell:<width$}  "));
            }
        }
        writeln!(out, "{}", line.trim_end())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header: Vec<&str> = self.header.iter().map(|name| name.trim_start_matches('>')).collect();
        let mut widths: Vec<usize> = header.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.line(out, &header, &widths)?;
        for row in &self.rows {
            self.line(out, &row.iter().map(String::as_str).collect::<Vec<_>>(), &widths)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["pool", ">reserve"]);
        table.row(["web".into(), "30%".into()]);
        table.row(["a-long-name".into(), "5 runs/s".into()]);
        assert_eq!(table.to_string(), "pool          reserve\nweb               30%\na-long-name  5 runs/s\n");
    }

    /// Planted break: cells are printed as they are.
    /// Promise: daemon-names-escaped, tenants-names-escaped.
    #[test]
    fn a_name_forges_no_row_and_steers_no_terminal() {
        let mut table = Table::new(&["who", ">read"]);
        table.row(["a\x1b[2J\nroot  0 B/s\u{9b}é".into(), "1 B/s".into()]);
        assert_eq!(
            table.to_string(),
            "who                              read\na\\u{1b}[2J\\nroot  0 B/s\\u{9b}é  1 B/s\n"
        );
    }
}
