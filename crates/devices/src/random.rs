//! Numbers that look random and are the same for the same seed.

/// Scatters `value` over all 64-bit numbers (the finalizer of SplitMix64, Steele, Lea and Flood 2014).
pub fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A stream of such numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that belongs to `seed`.
    pub fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// The next number, evenly spread over 0 .. `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }
}
