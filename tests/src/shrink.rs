//! Makes a history that fails smaller: fewer actions, fewer choices, fewer faults, shorter delays. It knows nothing of
//! what the choices mean, only whether what is left still fails in the same way.

use crate::chance::Choice;

/// A history as the choices that make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The user's actions.
    pub acts: u64,
    /// What was chosen, in order. What comes after them is quiet.
    pub choices: Vec<Choice>,
}

impl Script {
    /// Things with a rate that happen in it.
    pub fn hits(&self) -> usize {
        self.choices.iter().filter(|choice| **choice == Choice::Hit(true)).count()
    }
}

struct Shrinking<F> {
    best: Script,
    fails: F,
    left: u64,
}

impl<F: FnMut(&Script) -> bool> Shrinking<F> {
    /// Takes `script` if it still fails.
    fn take(&mut self, script: Script) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let fails = (self.fails)(&script);
        if fails {
            self.best = script;
        }
        fails
    }

    fn fewer_acts(&mut self) {
        let mut step = self.best.acts / 2;
        while step > 0 {
            if !self.take(Script { acts: self.best.acts - step, ..self.best.clone() }) {
                step /= 2;
            }
            step = step.min(self.best.acts.saturating_sub(1));
        }
    }

    fn shorter(&mut self) {
        let mut step = self.best.choices.len() / 2;
        while step > 0 {
            let end = self.best.choices.len() - step;
            if !self.take(Script { choices: self.best.choices[..end].to_vec(), ..self.best.clone() }) {
                step /= 2;
            }
            step = step.min(self.best.choices.len() / 2);
        }
    }

    /// Removes runs of choices, long ones first, from the end to the start.
    fn holes(&mut self) {
        let mut size = self.best.choices.len() / 4;
        while size > 0 && self.left > 0 {
            let mut end = self.best.choices.len();
            while end >= size && self.left > 0 {
                let mut choices = self.best.choices.clone();
                choices.drain(end - size..end);
                self.take(Script { choices, ..self.best.clone() });
                end = (end - size).min(self.best.choices.len());
            }
            // What belongs together is short, and may have any length.
            size = if size > 16 { size / 2 } else { size - 1 };
        }
    }

    /// Lets what has a rate not happen, alone or with what it chose after that.
    fn quiet(&mut self) {
        let mut index = self.best.choices.len();
        while index > 0 && self.left > 0 {
            index -= 1;
            if self.best.choices.get(index) != Some(&Choice::Hit(true)) {
                continue;
            }
            for details in 0..4 {
                let mut choices = self.best.choices.clone();
                choices[index] = Choice::Hit(false);
                let end = (index + 1 + details).min(choices.len());
                choices.drain(index + 1..end);
                if self.take(Script { choices, ..self.best.clone() }) {
                    break;
                }
            }
        }
    }

    fn smaller_picks(&mut self) {
        for index in 0..self.best.choices.len() {
            if let Some(Choice::Pick(value @ 1..)) = self.best.choices.get(index).copied() {
                for smaller in [0, value / 2] {
                    let mut choices = self.best.choices.clone();
                    choices[index] = Choice::Pick(smaller);
                    if self.take(Script { choices, ..self.best.clone() }) {
                        break;
                    }
                }
            }
        }
    }
}

/// The smallest script found that still fails, with at most `tries` runs of `fails`. `script` itself fails.
pub fn shrink(script: Script, tries: u64, fails: impl FnMut(&Script) -> bool) -> Script {
    let mut shrinking = Shrinking { best: script, fails, left: tries };
    loop {
        let before = shrinking.best.clone();
        shrinking.fewer_acts();
        shrinking.shorter();
        shrinking.quiet();
        shrinking.holes();
        if shrinking.left == 0 || shrinking.best == before {
            break;
        }
    }
    shrinking.smaller_picks();
    shrinking.best
}
