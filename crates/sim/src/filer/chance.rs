//! Chance: one stream of numbers for each purpose, so that two policies see the same requests.

use plimsoll_core::Span;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// A stream of numbers.
pub(super) struct Chance(Pcg64Mcg);

impl Chance {
    /// The stream for `purpose`, of this seed.
    pub(super) fn new(seed: u64, purpose: u64) -> Chance {
        Chance(Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(purpose) << 1 | 1))
    }

    /// From 0 up to and without 1.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from 0 up to and without `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A ticket for a selector.
    pub(super) fn ticket(&mut self) -> u32 {
        (self.0.next_u64() >> 32) as u32
    }

    /// Exponentially distributed around `mean`: what comes without memory.
    pub(super) fn exponential(&mut self, mean: Span) -> Span {
        Span::from_secs_f64(mean.as_secs_f64() * -(1.0 - self.fraction()).ln())
    }

    /// Normally distributed around 0 with deviation 1 (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }

    /// Log-normally distributed around `mean`, the logarithm with deviation `sigma`.
    pub(super) fn log_normal(&mut self, mean: Span, sigma: f64) -> Span {
        Span::from_secs_f64(mean.as_secs_f64() * (sigma * self.normal() - sigma * sigma / 2.0).exp())
    }
}
