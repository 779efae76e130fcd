//! Reply relay: the answer of a request that moved with its object goes to the requester's node again and again until
//! that node has it. A closed connection proves nothing.

/// The relay of one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyRelay {
    sends_left: u32,
}

/// What the relay hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelayInput {
    /// Time for the next send.
    Timer,
    /// 46, whatever its status.
    Acknowledged,
    /// The requester's lease has ended, or the node is over.
    RequesterGone,
}

/// What the relay wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelayEffect {
    /// Send 33 and set the timer again.
    Send,
    /// The requester has the answer, or is gone.
    End,
    /// It was sent as often as it may be.
    GiveUp,
}

impl ReplyRelay {
    /// Begins with the first send, which the caller makes at once.
    pub const fn start(sends: u32) -> Self {
        Self { sends_left: sends.saturating_sub(1) }
    }

    /// One step.
    pub fn step(&mut self, input: RelayInput) -> RelayEffect {
        match input {
            RelayInput::Timer => match self.sends_left.checked_sub(1) {
                Some(left) => {
                    self.sends_left = left;
                    RelayEffect::Send
                }
                None => RelayEffect::GiveUp,
            },
            RelayInput::Acknowledged | RelayInput::RequesterGone => RelayEffect::End,
        }
    }
}
