//! Fences: the exact tenures that a frame or a store plan speaks of. A frame belongs to a move only by its
//! [`RelocationIdentity`] and the authenticated peer that carried it.

use crate::id::{
    AttemptGeneration, BindingGeneration, LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OwnerGeneration,
    OwnerId, RelocationId, RoutingId, StoreVersion, TypeName,
};

/// The kind of an object. Each kind is an id space of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// One address, one mailbox.
    Actor,
    /// A spot: a room that holds actors, or one made by its first message.
    Spot,
}

/// The address of an object, whatever its incarnation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its id within the kind.
    pub id: ObjectId,
}

impl ObjectKey {
    /// The address of the actor `id`.
    pub fn actor(id: ObjectId) -> Self {
        Self { kind: ObjectKind::Actor, id }
    }

    /// The same address in storage of its own.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { kind: self.kind, id: self.id.detached() }
    }
}

impl core::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.kind {
            ObjectKind::Actor => write!(f, "actor:{}", self.id),
            ObjectKind::Spot => write!(f, "spot:{}", self.id),
        }
    }
}

/// The owner that the store names for an object: a host and one lease generation of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerPair {
    /// The host's owner id.
    pub owner: OwnerId,
    /// The lease generation: another one is another owner.
    pub lease: LeaseGeneration,
}

/// One run of a host process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeFence {
    /// The routing id.
    pub rid: RoutingId,
    /// The run of it.
    pub generation: NodeGeneration,
}

impl core::fmt::Display for NodeFence {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.rid, self.generation)
    }
}

/// A node with the owner pair that it holds: who a peer is, who a target is, who asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerFence {
    /// The run of the host process.
    pub node: NodeFence,
    /// The owner pair it claimed.
    pub owner: OwnerPair,
}

impl PeerFence {
    /// The same fence in storage of its own.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            node: NodeFence { rid: self.node.rid.detached(), generation: self.node.generation },
            owner: OwnerPair { owner: self.owner.owner.detached(), lease: self.owner.lease },
        }
    }
}

/// The exact source tenure of a move: who coordinates it, and the store version that its commit expects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorFence {
    /// The source's owner pair.
    pub owner: OwnerPair,
    /// The source node.
    pub node: NodeFence,
    /// The version of the object's record, read after the last write that the source itself made to it.
    pub version: StoreVersion,
}

/// What every frame of a move carries. Two frames belong together only if all of it is equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelocationIdentity {
    /// The relocation.
    pub relocation: RelocationId,
    /// The attempt.
    pub attempt: AttemptGeneration,
    /// The source tenure.
    pub coordinator: CoordinatorFence,
}

impl RelocationIdentity {
    /// The same identity in storage of its own.
    #[must_use]
    pub fn detached(&self) -> Self {
        let c = &self.coordinator;
        Self {
            relocation: self.relocation,
            attempt: self.attempt,
            coordinator: CoordinatorFence {
                owner: OwnerPair { owner: c.owner.owner.detached(), lease: c.owner.lease },
                node: NodeFence { rid: c.node.rid.detached(), generation: c.node.generation },
                version: c.version.detached(),
            },
        }
    }
}

/// The object of a move, with the generations that the move expects to find.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectIdentity {
    /// An actor.
    Actor {
        /// Its id.
        id: ObjectId,
        /// Its incarnation.
        generation: ObjectGeneration,
        /// The owner generation before the move.
        owner_generation: OwnerGeneration,
    },
    /// A room that holds actors.
    UserSpot {
        /// Its id.
        id: ObjectId,
        /// Its incarnation.
        generation: ObjectGeneration,
        /// The owner generation before the move.
        owner_generation: OwnerGeneration,
    },
    /// A room made by its first message.
    InstanceSpot {
        /// Its stable type.
        stable_type: TypeName,
        /// Its id.
        id: ObjectId,
        /// Its incarnation.
        generation: ObjectGeneration,
    },
}

impl ObjectIdentity {
    /// The address.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Actor { id, .. } => ObjectKey { kind: ObjectKind::Actor, id: id.clone() },
            Self::UserSpot { id, .. } | Self::InstanceSpot { id, .. } => {
                ObjectKey { kind: ObjectKind::Spot, id: id.clone() }
            }
        }
    }

    /// The incarnation.
    pub const fn generation(&self) -> ObjectGeneration {
        match self {
            Self::Actor { generation, .. }
            | Self::UserSpot { generation, .. }
            | Self::InstanceSpot { generation, .. } => *generation,
        }
    }

    /// The owner generation before the move, where the identity carries one.
    pub const fn owner_generation(&self) -> Option<OwnerGeneration> {
        match self {
            Self::Actor { owner_generation, .. } | Self::UserSpot { owner_generation, .. } => Some(*owner_generation),
            Self::InstanceSpot { .. } => None,
        }
    }

    /// The same identity in storage of its own.
    #[must_use]
    pub fn detached(&self) -> Self {
        match self {
            Self::Actor { id, generation, owner_generation } => {
                Self::Actor { id: id.detached(), generation: *generation, owner_generation: *owner_generation }
            }
            Self::UserSpot { id, generation, owner_generation } => {
                Self::UserSpot { id: id.detached(), generation: *generation, owner_generation: *owner_generation }
            }
            Self::InstanceSpot { stable_type, id, generation } => {
                Self::InstanceSpot { stable_type: stable_type.detached(), id: id.detached(), generation: *generation }
            }
        }
    }
}

/// Where a message is addressed: one tenure of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteFence {
    /// The object's id. The kind follows from the record that carries the fence.
    pub object: ObjectId,
    /// Its incarnation.
    pub generation: ObjectGeneration,
    /// The node that owned it.
    pub node: NodeFence,
    /// The owner generation of that tenure.
    pub owner_generation: OwnerGeneration,
    /// The lease generation of that owner.
    pub lease: LeaseGeneration,
}

impl RouteFence {
    /// The same fence in storage of its own.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            object: self.object.detached(),
            generation: self.generation,
            node: NodeFence { rid: self.node.rid.detached(), generation: self.node.generation },
            owner_generation: self.owner_generation,
            lease: self.lease,
        }
    }
}

/// One binding of a client session: who holds the connection, and which binding of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionFence {
    /// The node that holds the client's connection, and its owner pair.
    pub owner: PeerFence,
    /// The session's routing id.
    pub session: RoutingId,
    /// The binding.
    pub binding: BindingGeneration,
}

/// One life of an object on one node. Every command to the host names one, never just an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// The object.
    pub object: ObjectKey,
    /// Its incarnation.
    pub generation: ObjectGeneration,
    /// The owner generation of this life.
    pub owner_generation: OwnerGeneration,
    /// The move that brings this life about, while it is not yet the owner: two attempts at one node stage apart.
    /// `None` for an object that was created or reclaimed here.
    pub relocation: Option<RelocationId>,
}

impl Tenure {
    /// What a turn of this life shows to the systems it writes to.
    pub const fn token(&self) -> FencingToken {
        FencingToken { generation: self.generation, owner_generation: self.owner_generation }
    }
}

/// Proof of recency for systems outside the cluster: a database that remembers the greatest owner generation it saw
/// of an incarnation can refuse a stale owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    /// The incarnation.
    pub generation: ObjectGeneration,
    /// The owner generation within it.
    pub owner_generation: OwnerGeneration,
}
