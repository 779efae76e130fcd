//! The world's only source of choices.

/// A small generator: one seed is one history.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A generator for `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// 0 up to `bound`, not included.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// True in `per_mille` of 1,000 cases.
    pub const fn hits(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}
