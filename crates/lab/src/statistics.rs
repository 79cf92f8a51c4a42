//! Figures over several seeds.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// How sure an interval is: in 95 of 100 experiments like this one it holds the true mean.
const CONFIDENCE: f64 = 0.95;

/// A mean and how far the true one may be from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean of what was measured.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval; `None` with fewer than two values, which say nothing about it.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Mean and interval of `values` by Student's t distribution. Values of different seeds are independent, and their
    /// spread is estimated. `None` without values.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let mean = mean(values)?;
        let half_width = (values.len() >= 2).then(|| {
            let freedom = (values.len() - 1) as f64;
            let t = StudentsT::new(0.0, 1.0, freedom).expect("at least one degree of freedom");
            let quantile = t.inverse_cdf(0.5 + CONFIDENCE / 2.0);
            quantile * sample_deviation(values, mean) / (values.len() as f64).sqrt()
        });
        Some(Estimate { mean, half_width })
    }

    /// The ends of the interval; the mean twice where there is none.
    pub fn ends(&self) -> (f64, f64) {
        let half_width = self.half_width.unwrap_or(0.0);
        (self.mean - half_width, self.mean + half_width)
    }
}

/// The mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The mean of each `length` values in a row; none if there are fewer, or of 0.
pub fn moving_means(values: &[f64], length: usize) -> Vec<f64> {
    match length {
        0 => Vec::new(),
        _ => values.windows(length).filter_map(mean).collect(),
    }
}

/// Deviation of a sample (divided by n - 1), for estimating that of what it was drawn from.
fn sample_deviation(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Standard deviation of all there is (divided by n); `None` without values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / values.len() as f64).sqrt())
}

/// The mean of `|value - ideal| / ideal`, pair by pair: how far shares are from what they should be. `None` without
/// values, or if the two are not equally many, or an ideal is 0.
pub fn deviation(values: &[f64], ideals: &[f64]) -> Option<f64> {
    if values.len() != ideals.len() || ideals.contains(&0.0) {
        return None;
    }
    let apart: Vec<f64> = values.iter().zip(ideals).map(|(value, ideal)| (value - ideal).abs() / ideal.abs()).collect();
    mean(&apart)
}

/// Each value divided by its counterpart; `None` if they are not equally many, or one is divided by 0.
pub fn ratios(values: &[f64], of: &[f64]) -> Option<Vec<f64>> {
    (values.len() == of.len() && !of.contains(&0.0))
        .then(|| values.iter().zip(of).map(|(value, of)| value / of).collect())
}

/// Place at which a line through the points (`places`, `heights`) first rises above `height`. It is the line's end if
/// it never does, its beginning if it is above from there on. `None` without points, or if there are more of one than
/// of the other.
pub fn crossing(places: &[f64], heights: &[f64], height: f64) -> Option<f64> {
    if places.len() != heights.len() {
        return None;
    }
    match heights.iter().position(|&each| each > height) {
        None => places.last().copied(),
        Some(0) => places.first().copied(),
        Some(above) => {
            let part = (height - heights[above - 1]) / (heights[above] - heights[above - 1]);
            Some(places[above - 1] + (places[above] - places[above - 1]) * part)
        }
    }
}

/// The smallest value that at least the part `fraction` (0 to 1) of the values does not exceed; `None` without values.
pub fn quantile(values: &[f64], fraction: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (fraction.clamp(0.0, 1.0) * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles of Student's t for 95 %, two-sided, as statistical tables have them.
    #[test]
    fn intervals_follow_the_table_of_students_t() {
        for (count, table) in [(2usize, 12.706), (3, 4.303), (5, 2.776), (10, 2.262), (31, 2.042)] {
            // Half of the values at -1 and half at +1, the odd one at 0: the deviation is known exactly.
            let values: Vec<f64> = (0..count)
                .map(|index| if index == count - 1 && count % 2 == 1 { 0.0 } else { (index % 2) as f64 * 2.0 - 1.0 })
                .collect();
            let even = (count / 2 * 2) as f64;
            let expected = table * (even / (count - 1) as f64).sqrt() / (count as f64).sqrt();
            let estimate = Estimate::of(&values).unwrap();
            assert_eq!(estimate.mean, 0.0);
            let got = estimate.half_width.unwrap();
            assert!((got / expected - 1.0).abs() < 2e-4, "{count} values: {got}, by the table {expected}");
        }
    }

    /// The example of a textbook: 8 of n = 4, mean 5, s = 2.582, 95 %: 5 +- 3.182 * 1.291.
    #[test]
    fn an_interval_worked_out_by_hand() {
        let estimate = Estimate::of(&[2.0, 4.0, 6.0, 8.0]).unwrap();
        assert_eq!(estimate.mean, 5.0);
        assert!((estimate.half_width.unwrap() - 4.1084).abs() < 1e-3);
        let (low, high) = estimate.ends();
        assert!((low - 0.8916).abs() < 1e-3 && (high - 9.1084).abs() < 1e-3);
    }

    #[test]
    fn one_value_has_no_interval_and_none_has_no_mean() {
        assert_eq!(Estimate::of(&[7.0]), Some(Estimate { mean: 7.0, half_width: None }));
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!((mean(&[]), standard_deviation(&[]), quantile(&[], 0.5)), (None, None, None));
    }

    #[test]
    fn a_line_crosses_a_height_where_it_is_first_above() {
        let places = [10.0, 20.0, 30.0, 40.0];
        assert_eq!(crossing(&places, &[1.0, 3.0, 11.0, 2.0], 5.0), Some(22.5));
        assert_eq!(crossing(&places, &[1.0, 2.0, 3.0, 4.0], 5.0), Some(40.0), "never");
        assert_eq!(crossing(&places, &[6.0, 2.0, 3.0, 9.0], 5.0), Some(10.0), "from the beginning");
        assert_eq!((crossing(&places, &[1.0], 5.0), crossing(&[], &[], 5.0)), (None, None));
    }

    #[test]
    fn deviations_and_quantiles() {
        assert_eq!(standard_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some(2.0));
        assert_eq!(deviation(&[90.0, 110.0], &[100.0, 100.0]), Some(0.1));
        assert_eq!(deviation(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(deviation(&[1.0], &[0.0]), None);
        assert_eq!(ratios(&[90.0, 30.0], &[100.0, 20.0]), Some(vec![0.9, 1.5]));
        assert_eq!((ratios(&[1.0], &[0.0]), ratios(&[1.0], &[1.0, 2.0])), (None, None));
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 1.0), Some(4.0));
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.0), Some(1.0));
    }
}
