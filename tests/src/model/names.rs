//! The identities of the search: which numbers stand for which nodes, owners, objects and attempts of the core.

use super::setup::{Setup, Weakening};
use rehome::fence::{CoordinatorFence, NodeFence, ObjectIdentity, ObjectKey, OwnerPair, PeerFence};
use rehome::id::{
    LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OwnerGeneration, OwnerId, ParticipantId, RelocationId,
    RoutingId, StoreVersion, Text8, TypeName,
};
use rehome::machine::settlement::{SourceTenure, TargetTenure};
use rehome::store::plan::NewTenure;
use rehome::wire::{ApplicationState, SavedState, StreamContents, encode_stream};
use rehome::{Rope, state::StateWriter};

/// What one attempt is about; all of it stands in its prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) attempt: u8,
    pub(super) source: u8,
    pub(super) target: u8,
    pub(super) incarnation: u8,
    pub(super) owner_generation: u8,
    /// The reply that showed the record before the seal; 0 before it came.
    pub(super) read: u16,
}

impl Facts {
    /// Whether a frame of one is taken for a frame of the other, given the versions that their fences name.
    pub(super) fn looks_like(&self, other: &Self, same_version: bool) -> bool {
        self.source == other.source
            && self.target == other.target
            && self.incarnation == other.incarnation
            && self.owner_generation == other.owner_generation
            && same_version
    }
}

/// Makes the core's values from numbers.
#[derive(Clone, Debug)]
pub(super) struct Names {
    setup: Setup,
}

impl Names {
    pub(super) const fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// The routing id of a process, as a number: a twin has the first one's.
    pub(super) fn place(&self, process: u8) -> u8 {
        if self.is_twin(process) { 0 } else { process }
    }

    fn is_twin(&self, process: u8) -> bool {
        self.setup.twin && process == self.setup.nodes
    }

    pub(super) fn peer(&self, process: u8) -> PeerFence {
        let run = 1 + u64::from(self.is_twin(process));
        let place = self.place(process);
        PeerFence {
            node: NodeFence {
                rid: RoutingId::new(vec![b'a' + place]).expect("an id"),
                generation: NodeGeneration::new(run).expect("a generation"),
            },
            owner: OwnerPair {
                owner: OwnerId::new(&format!("owner-{place}")).expect("an id"),
                lease: LeaseGeneration::new(run).expect("a generation"),
            },
        }
    }

    pub(super) fn process_of(&self, owner: &OwnerPair) -> u8 {
        let count = u8::try_from(self.setup.processes()).expect("few processes");
        (0..count).find(|process| self.peer(*process).owner == *owner).expect("an owner of this search")
    }

    pub(super) fn object() -> ObjectKey {
        ObjectKey::actor(ObjectId::new("object").expect("an id"))
    }

    pub(super) fn stable_type() -> TypeName {
        TypeName::new("thing").expect("a name")
    }

    pub(super) fn mesh() -> Text8 {
        Text8::new("mesh").expect("a name")
    }

    pub(super) fn incarnation(number: u8) -> ObjectGeneration {
        ObjectGeneration::new(u64::from(number)).expect("a generation")
    }

    pub(super) fn owner_generation(number: u8) -> OwnerGeneration {
        OwnerGeneration::new(u64::from(number)).expect("a generation")
    }

    pub(super) fn relocation(&self, attempt: u8) -> RelocationId {
        let number = if self.setup.lacks(Weakening::IdentityRecurs) { 1 } else { u128::from(attempt) + 1 };
        RelocationId::new(number).expect("not zero")
    }

    pub(super) fn new_tenure(&self, process: u8) -> NewTenure {
        let peer = self.peer(process);
        NewTenure {
            object: Self::object(),
            stable_type: Self::stable_type(),
            mesh: Self::mesh(),
            node: peer.node,
            owner: peer.owner,
        }
    }

    pub(super) fn identity(facts: &Facts) -> ObjectIdentity {
        ObjectIdentity::Actor {
            id: Self::object().id,
            generation: Self::incarnation(facts.incarnation),
            owner_generation: Self::owner_generation(facts.owner_generation),
        }
    }

    pub(super) fn source_tenure(&self, facts: &Facts, version: StoreVersion) -> SourceTenure {
        SourceTenure {
            generation: Self::incarnation(facts.incarnation),
            owner_generation: Self::owner_generation(facts.owner_generation),
            owner: self.peer(facts.source).owner,
            version,
            relocation: self.relocation(facts.attempt),
            target: self.peer(facts.target),
        }
    }

    pub(super) fn target_tenure(&self, facts: &Facts, expected: StoreVersion) -> TargetTenure {
        TargetTenure {
            generation: Self::incarnation(facts.incarnation),
            owner_generation: Self::owner_generation(facts.owner_generation + 1),
            owner: self.peer(facts.target).owner,
            expected,
            relocation: self.relocation(facts.attempt),
        }
    }

    pub(super) fn coordinator(&self, facts: &Facts, version: StoreVersion) -> CoordinatorFence {
        let source = self.peer(facts.source);
        CoordinatorFence { owner: source.owner, node: source.node, version }
    }

    /// The stream of an attempt, as its source would send it in one chunk, and its checksum.
    pub(super) fn stream(&self, facts: &Facts) -> (Rope, u32) {
        let mut state = StateWriter::new();
        state.write(&[facts.attempt]);
        let state = state.finish();
        let contents = StreamContents {
            relocation: self.relocation(facts.attempt),
            object: Self::identity(facts),
            application_version: 1,
            states: vec![ApplicationState {
                participant: ParticipantId::FIRST,
                state: Some(SavedState { rope: state.rope, crc: Some(state.crc) }),
            }],
            work: Vec::new(),
            timers: Vec::new(),
            ticks: Vec::new(),
        };
        encode_stream(&contents).expect("a stream")
    }
}
