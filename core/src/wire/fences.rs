//! The bytes of ids and fences: the pieces that the records are made of. Decides nothing.

use super::error::EncodeError;
use super::reader::{Read, Reader};
use super::record::Role;
use super::writer::Writer;
use crate::fence::{
    CoordinatorFence, NodeFence, ObjectIdentity, OwnerPair, PeerFence, RelocationIdentity, RouteFence, SessionFence,
};
use crate::id::{
    AttemptGeneration, BindingGeneration, LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OperationId,
    OwnerGeneration, OwnerId, RelocationId, RoutingId, TypeName,
};

impl Reader {
    #[inline]
    pub(super) fn rid(&mut self, field: &'static str) -> Read<RoutingId> {
        let at = self.offset();
        RoutingId::new(self.short_bytes(field)?).map_err(|_| Self::invalid(at, field))
    }

    #[inline]
    pub(super) fn object_id(&mut self) -> Read<ObjectId> {
        self.text8("object id").map(ObjectId::from)
    }

    #[inline]
    pub(super) fn object_generation(&mut self) -> Read<ObjectGeneration> {
        self.checked("object generation", ObjectGeneration::new)
    }

    #[inline]
    pub(super) fn owner_generation(&mut self, field: &'static str) -> Read<OwnerGeneration> {
        self.checked(field, OwnerGeneration::new)
    }

    #[inline]
    pub(super) fn lease(&mut self) -> Read<LeaseGeneration> {
        self.checked("lease generation", LeaseGeneration::new)
    }

    #[inline]
    pub(super) fn binding(&mut self) -> Read<BindingGeneration> {
        self.checked("binding generation", BindingGeneration::new)
    }

    #[inline(always)]
    pub(super) fn node(&mut self) -> Read<NodeFence> {
        let rid = self.rid("node rid")?;
        let generation = self.checked("node generation", NodeGeneration::new)?;
        Ok(NodeFence { rid, generation })
    }

    #[inline(always)]
    pub(super) fn owner(&mut self) -> Read<OwnerPair> {
        let owner = self.text8("owner id").map(OwnerId::from)?;
        Ok(OwnerPair { owner, lease: self.lease()? })
    }

    /// Node first, then owner: targets, session owners and sources of messages.
    #[inline(always)]
    pub(super) fn peer(&mut self) -> Read<PeerFence> {
        let node = self.node()?;
        Ok(PeerFence { node, owner: self.owner()? })
    }

    #[inline]
    pub(super) fn operation(&mut self) -> Read<OperationId> {
        self.u128("operation id").map(OperationId)
    }

    /// An operation id that must name one.
    #[inline]
    pub(super) fn some_operation(&mut self) -> Read<OperationId> {
        let at = self.offset();
        let operation = self.operation()?;
        if operation == OperationId::NONE { Err(Self::invalid(at, "operation id")) } else { Ok(operation) }
    }

    pub(super) fn relocation(&mut self) -> Read<RelocationId> {
        let at = self.offset();
        RelocationId::new(self.u128("relocation id")?).map_err(|_| Self::invalid(at, "relocation id"))
    }

    pub(super) fn coordinator(&mut self) -> Read<CoordinatorFence> {
        let owner = self.owner()?;
        let node = self.node()?;
        let version = self.version("expected store version")?;
        Ok(CoordinatorFence { owner, node, version })
    }

    pub(super) fn identity(&mut self) -> Read<RelocationIdentity> {
        let relocation = self.relocation()?;
        let attempt = self.checked("attempt", AttemptGeneration::new)?;
        Ok(RelocationIdentity { relocation, attempt, coordinator: self.coordinator()? })
    }

    pub(super) fn object(&mut self) -> Read<ObjectIdentity> {
        let case = self.enter("object")?;
        let object = match case.tag {
            1 => ObjectIdentity::Actor {
                id: self.object_id()?,
                generation: self.object_generation()?,
                owner_generation: self.owner_generation("owner generation")?,
            },
            2 => ObjectIdentity::UserSpot {
                id: self.object_id()?,
                generation: self.object_generation()?,
                owner_generation: self.owner_generation("owner generation")?,
            },
            3 => ObjectIdentity::InstanceSpot {
                stable_type: self.text8("stable type").map(TypeName::from)?,
                id: self.object_id()?,
                generation: self.object_generation()?,
            },
            _ => return Err(Self::invalid(case.at, "object")),
        };
        self.leave(case, "object")?;
        Ok(object)
    }

    #[inline(always)]
    pub(super) fn route(&mut self) -> Read<RouteFence> {
        let object = self.object_id()?;
        let generation = self.object_generation()?;
        let node = self.node()?;
        let owner_generation = self.owner_generation("owner generation")?;
        Ok(RouteFence { object, generation, node, owner_generation, lease: self.lease()? })
    }

    pub(super) fn session(&mut self) -> Read<SessionFence> {
        let owner = self.peer()?;
        let session = self.rid("session rid")?;
        Ok(SessionFence { owner, session, binding: self.binding()? })
    }

    pub(super) fn any_role(&mut self) -> Read<Role> {
        let at = self.offset();
        match self.u8("role")? {
            1 => Ok(Role::Source),
            2 => Ok(Role::Target),
            3 => Ok(Role::Coordinator),
            _ => Err(Self::invalid(at, "role")),
        }
    }

    pub(super) fn role(&mut self, only: Role) -> Read<()> {
        let at = self.offset();
        if self.any_role()? == only { Ok(()) } else { Err(Self::invalid(at, "role")) }
    }
}

impl Writer {
    #[inline]
    pub(super) fn rid(&mut self, rid: &RoutingId) {
        self.short_bytes(rid.as_bytes());
    }

    #[inline]
    pub(super) fn node(&mut self, node: &NodeFence) {
        self.rid(&node.rid);
        self.u64(node.generation.get());
    }

    #[inline]
    pub(super) fn owner(&mut self, owner: &OwnerPair) {
        self.text8(owner.owner.text());
        self.u64(owner.lease.get());
    }

    /// Node first, then owner.
    #[inline]
    pub(super) fn peer(&mut self, peer: &PeerFence) {
        self.node(&peer.node);
        self.owner(&peer.owner);
    }

    #[inline]
    pub(super) fn operation(&mut self, operation: OperationId) {
        self.u128(operation.0);
    }

    #[inline]
    pub(super) fn some_operation(&mut self, operation: OperationId) -> Result<(), EncodeError> {
        if operation == OperationId::NONE {
            return Err(EncodeError::Invalid { field: "operation id" });
        }
        self.operation(operation);
        Ok(())
    }

    pub(super) fn coordinator(&mut self, fence: &CoordinatorFence) {
        self.owner(&fence.owner);
        self.node(&fence.node);
        self.version(&fence.version);
    }

    pub(super) fn identity(&mut self, identity: &RelocationIdentity) {
        self.u128(identity.relocation.get());
        self.u64(identity.attempt.get());
        self.coordinator(&identity.coordinator);
    }

    pub(super) fn object(&mut self, object: &ObjectIdentity) {
        let case = match object {
            ObjectIdentity::Actor { id, generation, owner_generation } => {
                let case = self.open(1);
                self.text8(id.text());
                self.u64(generation.get());
                self.u64(owner_generation.get());
                case
            }
            ObjectIdentity::UserSpot { id, generation, owner_generation } => {
                let case = self.open(2);
                self.text8(id.text());
                self.u64(generation.get());
                self.u64(owner_generation.get());
                case
            }
            ObjectIdentity::InstanceSpot { stable_type, id, generation } => {
                let case = self.open(3);
                self.text8(stable_type.text());
                self.text8(id.text());
                self.u64(generation.get());
                case
            }
        };
        self.close(case);
    }

    #[inline]
    pub(super) fn route(&mut self, route: &RouteFence) {
        self.text8(route.object.text());
        self.u64(route.generation.get());
        self.node(&route.node);
        self.u64(route.owner_generation.get());
        self.u64(route.lease.get());
    }

    pub(super) fn session(&mut self, session: &SessionFence) {
        self.peer(&session.owner);
        self.rid(&session.session);
        self.u64(session.binding.get());
    }

    pub(super) fn role(&mut self, role: Role) {
        self.u8(match role {
            Role::Source => 1,
            Role::Target => 2,
            Role::Coordinator => 3,
        });
    }
}
