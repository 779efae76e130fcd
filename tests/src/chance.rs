//! The world's only source of choices: a seed, a string of bytes that somebody else made, or the choices of an earlier
//! history, changed or not. It must never look at a clock or at an address.

/// One choice of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Whether something that has a rate happens.
    Hit(bool),
    /// One of several.
    Pick(u64),
}

/// Where the choices come from before the generator goes on.
#[derive(Clone, Debug)]
enum Source {
    /// From nowhere else.
    Seed,
    /// From bytes.
    Bytes(Vec<u8>),
    /// From an earlier history.
    Choices(Vec<Choice>),
}

/// A small generator: one seed, one string of bytes, or one list of choices, is one history.
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
    source: Source,
    /// How much of the source is used up.
    used: usize,
    /// What was chosen so far, if anybody wants to know.
    made: Option<Vec<Choice>>,
}

impl Chance {
    /// A generator for `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x5DEE_CE66_D1CE_4E5B, source: Source::Seed, used: 0, made: None }
    }

    /// Takes its choices from `bytes`, a choice among up to 256 from one byte, so that a fuzzer's small change is a small
    /// change of the history. When they are used up it goes on as the generator of seed 0.
    pub fn given(bytes: &[u8]) -> Self {
        Self { source: Source::Bytes(bytes.to_vec()), ..Self::new(0) }
    }

    /// Takes the choices of an earlier history. When they are used up nothing that has a rate happens any more, and the
    /// rest is as for seed 0.
    pub fn again(choices: Vec<Choice>) -> Self {
        Self { source: Source::Choices(choices), ..Self::new(0) }
    }

    /// The same generator, which keeps what it chooses.
    #[must_use]
    pub fn recorded(self) -> Self {
        Self { made: Some(Vec::new()), ..self }
    }

    /// What was chosen since the start, for one that is recorded.
    pub fn choices(self) -> Vec<Choice> {
        self.made.unwrap_or_default()
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let value = self.bytes(8).or_else(|| self.picked()).unwrap_or_else(|| self.draw());
        self.note(Choice::Pick(value));
        value
    }

    /// 0 up to `bound`, not included.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        let value = self.pick(bound);
        self.note(Choice::Pick(value));
        value
    }

    /// True in `per_mille` of 1,000 cases.
    pub fn hits(&mut self, per_mille: u64) -> bool {
        let hit = match self.source {
            Source::Choices(_) => self.choice() == Some(Choice::Hit(true)),
            Source::Seed | Source::Bytes(_) => self.pick(1000) < per_mille,
        };
        self.note(Choice::Hit(hit));
        hit
    }

    fn pick(&mut self, bound: u64) -> u64 {
        // As many bytes as the largest choice needs. One choice among one needs none, and a seed draws for it all the
        // same: the histories of seeds stay what they are.
        let bytes = (64 - (bound - 1).leading_zeros()).div_ceil(8) as usize;
        self.bytes(bytes).or_else(|| self.picked()).unwrap_or_else(|| self.draw()) % bound
    }

    fn note(&mut self, choice: Choice) {
        if let Some(made) = &mut self.made {
            made.push(choice);
        }
    }

    fn bytes(&mut self, count: usize) -> Option<u64> {
        let Source::Bytes(given) = &self.source else { return None };
        if self.used >= given.len() {
            return None;
        }
        let mut value = 0;
        for _ in 0..count {
            value = value << 8 | u64::from(given.get(self.used).copied().unwrap_or(0));
            self.used += 1;
        }
        Some(value)
    }

    fn choice(&mut self) -> Option<Choice> {
        let Source::Choices(choices) = &self.source else { return None };
        let choice = choices.get(self.used).copied();
        self.used += 1;
        choice
    }

    fn picked(&mut self) -> Option<u64> {
        Some(match self.choice()? {
            Choice::Pick(value) => value,
            Choice::Hit(hit) => u64::from(hit),
        })
    }

    const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.state;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }
}
