//! Ids from the seed that the caller gave. Not a secret: ids must be distinct, not unguessable.

/// SplitMix64 twice, over a 128-bit seed: small, and the same on every platform.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entropy {
    high: u64,
    low: u64,
}

impl Entropy {
    pub(super) fn new(seed: u128) -> Self {
        let [high, low] = halves(seed);
        Self { high, low }
    }

    pub(super) fn next_u128(&mut self) -> u128 {
        self.high = self.high.wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.low = self.low.wrapping_add(0xD1B5_4A32_D192_ED03);
        let high = mix(self.high ^ self.low.rotate_left(32));
        let low = mix(self.low ^ high.rotate_left(17));
        u128::from(high) << 64 | u128::from(low)
    }

    /// 1 to 2^63-1.
    pub(super) fn next_generation(&mut self) -> u64 {
        let [_, low] = halves(self.next_u128());
        (low >> 1).max(1)
    }
}

fn halves(value: u128) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = value.to_be_bytes();
    [u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes(rest)]
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
