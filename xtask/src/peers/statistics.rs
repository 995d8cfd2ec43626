//! Medians, percentiles and ranges.

/// The value below which this part of the values is; none if there are none.
pub(crate) fn percentile(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * part).round() as usize).copied()
}

/// The middle of the values, or of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[lower] + values[upper]) / 2.0)
}

/// The median of several rounds, and their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values.to_vec())?,
            low: values.iter().copied().min_by(f64::total_cmp)?,
            high: values.iter().copied().max_by(f64::total_cmp)?,
            rounds: values.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut hundred: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut hundred, 0.0), Some(1.0));
        assert_eq!(percentile(&mut hundred, 0.5), Some(51.0));
        assert_eq!(percentile(&mut hundred, 0.99), Some(100.0));
        assert_eq!(percentile(&mut hundred, 1.0), Some(101.0));
        assert_eq!(percentile(&mut [], 0.5), None);
    }

    #[test]
    fn a_spread_has_the_range() {
        let spread = Spread::of(&[5.0, 1.0, 3.0]);
        assert_eq!(spread, Some(Spread { median: 3.0, low: 1.0, high: 5.0, rounds: 3 }));
        assert_eq!(Spread::of(&[]), None);
    }
}
