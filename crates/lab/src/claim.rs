//! A claim: an inequality, its margin, and whether what was measured satisfies it.
//!
//! `>= 0.9` with a margin of 5 % holds from 0.855 on; `near paper` with 5 % holds up to 5 % on either side. The margin
//! is the tolerance for the model, not statistics. [`ClaimOn`] says which values of several seeds must satisfy a claim.

use crate::statistics::Estimate;
use std::fmt;

/// How a value is compared with the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// At least the bound.
    AtLeast,
    /// At most the bound.
    AtMost,
    /// More than the bound.
    More,
    /// Less than the bound.
    Less,
    /// Not further from the bound than the margin.
    Near,
}

/// What a text that is no claim is told.
pub const ALLOWED: &str =
    "\">= X\", \"<= X\", \"> X\", \"< X\" or \"near X\", X a number or an expression such as paper * 1.2";

impl Relation {
    const ALL: [(&'static str, Relation); 5] = [
        (">=", Relation::AtLeast),
        ("<=", Relation::AtMost),
        (">", Relation::More),
        ("<", Relation::Less),
        ("near ", Relation::Near),
    ];

    /// Takes the relation off the front of a claim; what is left is the bound.
    pub fn split(text: &str) -> Option<(Relation, &str)> {
        let text = text.trim();
        let found =
            Relation::ALL.iter().find_map(|&(sign, relation)| Some((relation, text.strip_prefix(sign)?.trim())));
        found.filter(|(_, bound)| !bound.is_empty())
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = Relation::ALL.iter().find(|(_, relation)| relation == self).map_or("", |(sign, _)| sign);
        out.write_str(sign.trim())
    }
}

/// Which values of several seeds must satisfy a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimOn {
    /// The value of each seed.
    #[default]
    EverySeed,
    /// Their mean.
    Mean,
    /// Both ends of the mean's 95 % confidence interval.
    Interval,
}

impl ClaimOn {
    /// As a scenario has them.
    pub const ALL: [(&'static str, ClaimOn); 3] =
        [("every seed", ClaimOn::EverySeed), ("mean", ClaimOn::Mean), ("interval", ClaimOn::Interval)];

    /// As a scenario has it.
    pub fn name(self) -> &'static str {
        ClaimOn::ALL.iter().find(|(_, on)| *on == self).map_or("", |(name, _)| name)
    }
}

/// A claim with a known bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// How values are compared.
    pub relation: Relation,
    /// With what.
    pub bound: f64,
    /// How far off is forgiven, as a fraction of the bound.
    pub margin: f64,
}

impl Claim {
    /// Whether `value` satisfies it; what could not be measured (NaN) never does.
    pub fn holds(&self, value: f64) -> bool {
        let forgiven = self.bound.abs() * self.margin;
        match self.relation {
            Relation::AtLeast => value >= self.bound - forgiven,
            Relation::AtMost => value <= self.bound + forgiven,
            Relation::More => value > self.bound - forgiven,
            Relation::Less => value < self.bound + forgiven,
            Relation::Near => (value - self.bound).abs() <= forgiven,
        }
    }

    /// Whether the values of all seeds satisfy it, as `on` asks. Without values it does not hold.
    pub fn holds_on(&self, values: &[f64], on: ClaimOn) -> bool {
        let Some(estimate) = Estimate::of(values) else { return false };
        match on {
            ClaimOn::EverySeed => values.iter().all(|&value| self.holds(value)),
            ClaimOn::Mean => self.holds(estimate.mean),
            ClaimOn::Interval => self.holds(estimate.ends().0) && self.holds(estimate.ends().1),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.relation, readable(self.bound))?;
        match self.relation {
            Relation::Near => write!(out, " within {} %", readable(self.margin * 100.0)),
            _ if self.margin > 0.0 => write!(out, " (margin {} %)", readable(self.margin * 100.0)),
            _ => Ok(()),
        }
    }
}

/// `value` with about four significant digits, as people write it.
pub fn readable(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if !value.is_finite() => return "-".to_owned(),
        _ if size >= 1000.0 => format!("{value:.0}"),
        _ if size >= 100.0 => format!("{value:.1}"),
        _ if size >= 10.0 => format!("{value:.2}"),
        _ if size >= 0.1 || size == 0.0 => format!("{value:.3}"),
        _ if size >= 0.001 => format!("{value:.5}"),
        _ => return format!("{value:.3e}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(relation: Relation, margin: f64) -> Claim {
        Claim { relation, bound: 100.0, margin }
    }

    #[test]
    fn each_relation_holds_up_to_its_margin_and_fails_beyond() {
        let cases = [
            (Relation::AtLeast, [90.0, 100.0], [89.9, f64::NAN]),
            (Relation::AtMost, [110.0, -5.0], [110.1, f64::NAN]),
            (Relation::More, [90.1, 200.0], [90.0, f64::NAN]),
            (Relation::Less, [109.9, 0.0], [110.0, f64::NAN]),
            (Relation::Near, [90.0, 110.0], [89.9, 110.1]),
        ];
        for (relation, good, bad) in cases {
            assert!(good.iter().all(|&value| claim(relation, 0.1).holds(value)), "{relation}");
            assert!(!bad.iter().any(|&value| claim(relation, 0.1).holds(value)), "{relation}");
        }
        assert!(!claim(Relation::AtLeast, 0.0).holds(99.9));
        assert!(Claim { relation: Relation::AtLeast, bound: -100.0, margin: 0.1 }.holds(-110.0));
    }

    #[test]
    fn which_values_must_satisfy_it_is_said_by_the_scenario() {
        let claim = claim(Relation::AtLeast, 0.0);
        let values = [99.0, 103.0, 104.0];
        assert!(!claim.holds_on(&values, ClaimOn::EverySeed));
        assert!(claim.holds_on(&values, ClaimOn::Mean));
        assert!(!claim.holds_on(&values, ClaimOn::Interval), "102 +- 6.6");
        assert!(claim.holds_on(&[104.0, 104.1, 103.9], ClaimOn::Interval));
        assert!(!claim.holds_on(&[], ClaimOn::Mean));
        assert!(!claim.holds_on(&[120.0, f64::NAN], ClaimOn::Mean));
    }

    #[test]
    fn claims_are_split_and_printed() {
        assert_eq!(Relation::split(">=0.9"), Some((Relation::AtLeast, "0.9")));
        assert_eq!(Relation::split(" > paper * 2 "), Some((Relation::More, "paper * 2")));
        assert_eq!(Relation::split("near paper"), Some((Relation::Near, "paper")));
        assert_eq!((Relation::split("= 3"), Relation::split(">= ")), (None, None));
        assert_eq!(claim(Relation::AtMost, 0.05).to_string(), "<= 100 (margin 5 %)");
        assert_eq!(claim(Relation::Near, 0.05).to_string(), "near 100 within 5 %");
        assert_eq!([0.0, 1.5, 12345.6, 99.999].map(readable), ["0", "1.5", "12346", "100"]);
        assert_eq!([0.0078, 0.000_12].map(readable), ["0.0078", "1.200e-4"]);
    }
}
