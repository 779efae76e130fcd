//! The world's only source of choices: a seed, or a string of bytes that somebody else made. It must never look at a
//! clock or at an address.

/// A small generator: one seed, or one string of bytes, is one history.
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
    /// Choices that were made elsewhere, and how many bytes of them are used up.
    given: Vec<u8>,
    used: usize,
}

impl Chance {
    /// A generator for `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x5DEE_CE66_D1CE_4E5B, given: Vec::new(), used: 0 }
    }

    /// Takes its choices from `bytes`, a choice among up to 256 from one byte, so that a fuzzer's small change is a small
    /// change of the history. When they are used up it goes on as the generator of seed 0.
    pub fn given(bytes: &[u8]) -> Self {
        Self { given: bytes.to_vec(), ..Self::new(0) }
    }

    /// Whether choices that were given are left.
    pub fn is_guided(&self) -> bool {
        self.used < self.given.len()
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        match self.take(8) {
            Some(value) => value,
            None => self.draw(),
        }
    }

    /// 0 up to `bound`, not included.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // As many bytes as the largest choice needs. One choice among one needs none, and a seed draws for it all the
        // same: the histories of seeds stay what they are.
        let bytes = (64 - (bound - 1).leading_zeros()).div_ceil(8) as usize;
        match self.take(bytes) {
            Some(value) => value % bound,
            None => self.draw() % bound,
        }
    }

    /// True in `per_mille` of 1,000 cases.
    pub fn hits(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    fn take(&mut self, bytes: usize) -> Option<u64> {
        if !self.is_guided() {
            return None;
        }
        let mut value = 0;
        for _ in 0..bytes {
            value = value << 8 | u64::from(self.given.get(self.used).copied().unwrap_or(0));
            self.used += 1;
        }
        Some(value)
    }

    const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.state;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }
}
