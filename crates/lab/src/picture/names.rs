//! The names of places below bars: long ones in several lines, in a font as large as fits.

use super::{Area, BESIDE_AXIS_PIXELS, Drawn, FONT, PANEL_PIXELS, TICK_GAP_PIXELS, wrapped};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Of the texts of ticks, pixels: as large as fits, down to the smallest that is read.
const TICK_FONT_PIXELS: std::ops::RangeInclusive<u32> = 9..=13;
/// Estimated width of a letter, of its font's size.
const LETTER_OF_FONT: f64 = 0.53;

/// The names of places below bars, in lines that fit where each has its bars, and the size of their font.
pub(super) struct Names {
    /// Of each name.
    pub(super) lines: Vec<Vec<String>>,
    font: u32,
}

impl Names {
    pub(super) fn of(names: &[String]) -> Names {
        let pixels = f64::from(PANEL_PIXELS.0 - BESIDE_AXIS_PIXELS) / names.len().max(1) as f64 - TICK_GAP_PIXELS / 2.0;
        let longest = names.iter().flat_map(|name| name.split_whitespace()).map(|word| word.chars().count()).max();
        let fitting = pixels / (longest.unwrap_or(1) as f64 * LETTER_OF_FONT);
        let font = (fitting as u32).clamp(*TICK_FONT_PIXELS.start(), *TICK_FONT_PIXELS.end());
        let letters = (pixels / (f64::from(font) * LETTER_OF_FONT)) as usize;
        Names { lines: names.iter().map(|name| wrapped(name, letters)).collect(), font }
    }

    /// Of one line.
    fn line_pixels(&self) -> u32 {
        self.font + 2
    }

    /// Of the lines behind the first.
    pub(super) fn more_pixels(&self) -> u32 {
        let lines = self.lines.iter().map(Vec::len).max().unwrap_or(1);
        (lines as u32).saturating_sub(1) * self.line_pixels()
    }

    /// Draws them, each centred below its place; `place` says where that is.
    pub(super) fn draw(&self, area: &Area<'_>, place: impl Fn(usize) -> (i32, i32)) -> Drawn {
        let centred = Pos::new(HPos::Center, VPos::Top);
        let style = TextStyle::from((FONT, self.font).into_font()).pos(centred);
        for (number, lines) in self.lines.iter().enumerate() {
            let (x, y) = place(number);
            for (line, text) in (0..).zip(lines) {
                area.draw(&Text::new(text.clone(), (x, y + 8 + line * self.line_pixels() as i32), style.clone()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted breaks: a name stays in one line; the font is as large whatever is to fit.
    #[test]
    fn long_names_take_lines_or_small_letters_instead_of_their_neighbours_place() {
        let names = |names: &[&str]| Names::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let classes = ["unclassified", "metadata and journal", "to 1 MiB", "larger files", "5", "6", "7", "8"];
        let shown = names(&classes);
        assert_eq!(shown.lines[1], ["metadata and", "journal"]);
        assert!((9..13).contains(&shown.font), "{}", shown.font);
        assert_eq!(shown.more_pixels(), shown.line_pixels());
        let shown = names(&["lru", "selective"]);
        assert_eq!((shown.font, shown.more_pixels()), (13, 0));
        assert_eq!(names(&[]).more_pixels(), 0);
    }
}
