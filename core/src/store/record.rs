//! The bytes of the records in the store: canonical compact JSON, keys in a fixed order, 64-bit integers as strings.
//! An operator can read them with the engine's own tools. Nothing here decides anything.

use super::command::StoreKey;
use crate::fence::{NodeFence, ObjectKey, ObjectKind, OwnerPair};
use crate::id::{
    LeaseGeneration, NodeGeneration, ObjectGeneration, OwnerGeneration, OwnerId, RelocationId, RoutingId, StoreVersion,
    Text8, TypeName,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Why a record cannot be read. It is refused, never guessed at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RecordError {
    /// It is not the JSON that this version writes.
    #[error("the record is not readable: {0}")]
    Json(String),
    /// It is of a version that this library does not know.
    #[error("the record has version {0}, this library knows 1")]
    Version(u64),
    /// A field holds a value that it must not.
    #[error("the record's field {0} is out of bounds")]
    Field(&'static str),
    /// The record's slot is of another format.
    #[error("the record's slot is not readable")]
    Slot,
}

/// A 64-bit integer that JSON carries as a string, as readers of many languages lose bits of large numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Number(u64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let plain = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        match text.parse() {
            Ok(value) if plain => Ok(Self(value)),
            Ok(_) | Err(_) => Err(serde::de::Error::custom("not a canonical integer")),
        }
    }
}

/// The key of the owner record: which lease generation an owner id has reached.
pub fn owner_key(owner: &OwnerId) -> StoreKey {
    join(&[b"owner", owner.as_str().as_bytes()])
}

/// The key of one lease generation. Every generation lives and ends on its own.
pub fn lease_key(pair: &OwnerPair) -> StoreKey {
    join(&[b"lease", pair.owner.as_str().as_bytes(), pair.lease.get().to_string().as_bytes()])
}

/// The key of an object's authority record.
pub fn authority_key(object: &ObjectKey) -> StoreKey {
    let kind: &[u8] = match object.kind {
        ObjectKind::Actor => b"actor",
        ObjectKind::Spot => b"spot",
    };
    join(&[b"authority", kind, object.id.as_str().as_bytes()])
}

/// The key of a node's descriptor.
pub fn descriptor_key(mesh: &Text8, rid: &RoutingId) -> StoreKey {
    join(&[b"mesh-node", mesh.as_str().as_bytes(), rid.to_hex().as_bytes()])
}

/// The key of the reservations' count of one owner pair.
pub fn capacity_key(pair: &OwnerPair) -> StoreKey {
    join(&[b"capacity", pair.owner.as_str().as_bytes(), pair.lease.get().to_string().as_bytes()])
}

/// The key of one capacity reservation: it ends by itself.
pub fn reservation_key(pair: &OwnerPair, relocation: RelocationId) -> StoreKey {
    join(&[
        b"reservation",
        pair.owner.as_str().as_bytes(),
        pair.lease.get().to_string().as_bytes(),
        relocation.to_string().as_bytes(),
    ])
}

fn join(parts: &[&[u8]]) -> StoreKey {
    StoreKey(Bytes::from(parts.join(&0)))
}

/// The authority record of an object: who owns it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorityRecord {
    /// What this project keeps beside the shared fields.
    pub slot: Slot,
    /// The incarnation.
    pub generation: ObjectGeneration,
    /// The owner generation of the current tenure.
    pub owner_generation: OwnerGeneration,
    /// The owner.
    pub owner: OwnerPair,
    /// The type of the object.
    pub stable_type: TypeName,
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The mesh of the owner's node.
    pub mesh: Text8,
    /// The node of the owner: its routing id and its run.
    pub node: NodeFence,
}

/// This project's slot in an authority record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The relocation that made the current tenure; `None` for one that was created or reclaimed. Without it an older
    /// attempt at the same target could not be told from a newer one's commit.
    pub tenure_by: Option<RelocationId>,
    /// What the application stores beside it.
    pub application: Bytes,
}

const SLOT_VERSION: u8 = 1;

impl Slot {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.application.len().saturating_add(18));
        out.push(SLOT_VERSION);
        match self.tenure_by {
            None => out.push(0),
            Some(relocation) => {
                out.push(1);
                out.extend_from_slice(&relocation.get().to_be_bytes());
            }
        }
        out.extend_from_slice(&self.application);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        match bytes {
            [SLOT_VERSION, 0, application @ ..] => {
                Ok(Self { tenure_by: None, application: Bytes::copy_from_slice(application) })
            }
            [SLOT_VERSION, 1, rest @ ..] => {
                let (id, application) = rest.split_first_chunk::<16>().ok_or(RecordError::Slot)?;
                let relocation = RelocationId::new(u128::from_be_bytes(*id)).map_err(|_| RecordError::Slot)?;
                Ok(Self { tenure_by: Some(relocation), application: Bytes::copy_from_slice(application) })
            }
            _ => Err(RecordError::Slot),
        }
    }
}

/// The shared layout of an authority record, field for field. Text is borrowed from the bytes it was read from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorityLayout<'a> {
    /// The bytes of the slot, whatever runtime wrote them.
    pub payload: Vec<u8>,
    /// `objectGeneration`.
    pub object_generation: u64,
    /// `authorityOwnerGeneration`.
    pub owner_generation: u64,
    /// `ownerId`.
    pub owner_id: Cow<'a, str>,
    /// `ownerLeaseGeneration`.
    pub owner_lease_generation: u64,
    /// `allocation.state`.
    pub state: Cow<'a, str>,
    /// `allocation.objectKind`.
    pub object_kind: Cow<'a, str>,
    /// `allocation.stableType`.
    pub stable_type: Cow<'a, str>,
    /// `allocation.descriptor.meshName`.
    pub mesh_name: Cow<'a, str>,
    /// `allocation.descriptor.routingIdHex`.
    pub routing_id_hex: Cow<'a, str>,
    /// `allocation.descriptorLifecycleGeneration`.
    pub lifecycle_generation: u64,
    /// `allocation.capacity.actors`.
    pub actors: u32,
    /// `allocation.capacity.spots`.
    pub spots: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthorityJson<'a> {
    record_version: u64,
    #[serde(borrow)]
    payload: Cow<'a, str>,
    object_generation: Number,
    authority_owner_generation: Number,
    #[serde(borrow)]
    owner_id: Cow<'a, str>,
    owner_lease_generation: Number,
    #[serde(borrow)]
    allocation: AllocationJson<'a>,
    pending_creation: Option<()>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AllocationJson<'a> {
    #[serde(borrow)]
    state: Cow<'a, str>,
    #[serde(borrow)]
    object_kind: Cow<'a, str>,
    #[serde(borrow)]
    stable_type: Cow<'a, str>,
    #[serde(borrow)]
    descriptor: DescriptorRefJson<'a>,
    descriptor_lifecycle_generation: Number,
    #[serde(borrow)]
    capacity: CapacityJson<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DescriptorRefJson<'a> {
    #[serde(borrow)]
    mesh_name: Cow<'a, str>,
    #[serde(borrow)]
    routing_id_hex: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CapacityJson<'a> {
    actors: u32,
    spots: u32,
    #[serde(borrow)]
    spot_type: Option<Cow<'a, str>>,
}

impl<'a> AuthorityLayout<'a> {
    /// The canonical JSON.
    pub fn encode(&self) -> Bytes {
        json(&AuthorityJson {
            record_version: 1,
            payload: STANDARD.encode(&self.payload).into(),
            object_generation: Number(self.object_generation),
            authority_owner_generation: Number(self.owner_generation),
            owner_id: Cow::Borrowed(&self.owner_id),
            owner_lease_generation: Number(self.owner_lease_generation),
            allocation: AllocationJson {
                state: Cow::Borrowed(&self.state),
                object_kind: Cow::Borrowed(&self.object_kind),
                stable_type: Cow::Borrowed(&self.stable_type),
                descriptor: DescriptorRefJson {
                    mesh_name: Cow::Borrowed(&self.mesh_name),
                    routing_id_hex: Cow::Borrowed(&self.routing_id_hex),
                },
                descriptor_lifecycle_generation: Number(self.lifecycle_generation),
                capacity: CapacityJson { actors: self.actors, spots: self.spots, spot_type: None },
            },
            pending_creation: None,
        })
    }

    /// Reads canonical JSON.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let record: AuthorityJson<'a> = parse(bytes)?;
        if record.record_version != 1 {
            return Err(RecordError::Version(record.record_version));
        }
        let payload = STANDARD.decode(record.payload.as_bytes()).map_err(|_| RecordError::Field("payload"))?;
        let allocation = record.allocation;
        Ok(Self {
            payload,
            object_generation: record.object_generation.0,
            owner_generation: record.authority_owner_generation.0,
            owner_id: record.owner_id,
            owner_lease_generation: record.owner_lease_generation.0,
            state: allocation.state,
            object_kind: allocation.object_kind,
            stable_type: allocation.stable_type,
            mesh_name: allocation.descriptor.mesh_name,
            routing_id_hex: allocation.descriptor.routing_id_hex,
            lifecycle_generation: allocation.descriptor_lifecycle_generation.0,
            actors: allocation.capacity.actors,
            spots: allocation.capacity.spots,
        })
    }
}

impl AuthorityRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Bytes {
        let (kind, actors, spots) = match self.kind {
            ObjectKind::Actor => ("actor", 1, 0),
            ObjectKind::Spot => ("spot", 0, 1),
        };
        AuthorityLayout {
            payload: self.slot.encode(),
            object_generation: self.generation.get(),
            owner_generation: self.owner_generation.get(),
            owner_id: self.owner.owner.as_str().into(),
            owner_lease_generation: self.owner.lease.get(),
            state: "active".into(),
            object_kind: kind.into(),
            stable_type: self.stable_type.as_str().into(),
            mesh_name: self.mesh.as_str().into(),
            routing_id_hex: self.node.rid.to_hex().into(),
            lifecycle_generation: self.node.generation.get(),
            actors,
            spots,
        }
        .encode()
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let layout = AuthorityLayout::decode(bytes)?;
        let field = RecordError::Field;
        if layout.state != "active" {
            return Err(field("allocation.state"));
        }
        let kind = match &*layout.object_kind {
            "actor" => ObjectKind::Actor,
            "spot" => ObjectKind::Spot,
            _ => return Err(field("allocation.objectKind")),
        };
        Ok(Self {
            slot: Slot::decode(&layout.payload)?,
            generation: ObjectGeneration::new(layout.object_generation).map_err(|_| field("objectGeneration"))?,
            owner_generation: OwnerGeneration::new(layout.owner_generation)
                .map_err(|_| field("authorityOwnerGeneration"))?,
            owner: OwnerPair {
                owner: OwnerId::new(&layout.owner_id).map_err(|_| field("ownerId"))?,
                lease: LeaseGeneration::new(layout.owner_lease_generation)
                    .map_err(|_| field("ownerLeaseGeneration"))?,
            },
            stable_type: TypeName::new(&layout.stable_type).map_err(|_| field("allocation.stableType"))?,
            kind,
            mesh: Text8::new(&layout.mesh_name).map_err(|_| field("allocation.descriptor.meshName"))?,
            node: NodeFence {
                rid: RoutingId::from_hex(&layout.routing_id_hex).ok_or(field("allocation.descriptor.routingIdHex"))?,
                generation: NodeGeneration::new(layout.lifecycle_generation)
                    .map_err(|_| field("allocation.descriptorLifecycleGeneration"))?,
            },
        })
    }
}

/// An authority record with the version at which a read saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The record.
    pub record: AuthorityRecord,
    /// Its version.
    pub version: StoreVersion,
}

/// The owner record: the lease generation that an owner id has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRecord {
    /// The generation claimed last.
    pub lease: LeaseGeneration,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnerJson {
    record_version: u64,
    lease_generation: Number,
}

impl OwnerRecord {
    /// The record's bytes.
    pub fn encode(self) -> Bytes {
        json(&OwnerJson { record_version: 1, lease_generation: Number(self.lease.get()) })
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: OwnerJson = parse(bytes)?;
        if record.record_version != 1 {
            return Err(RecordError::Version(record.record_version));
        }
        LeaseGeneration::new(record.lease_generation.0)
            .map(|lease| Self { lease })
            .map_err(|_| RecordError::Field("leaseGeneration"))
    }
}

/// The lease record of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// The node that holds it.
    pub node: NodeFence,
    /// Random bits of the claimer: an unknown claim is adopted only if they read back.
    pub nonce: u128,
    /// When it was renewed, by the holder's wall clock: for people, never compared.
    pub renewed_unix_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LeaseJson {
    record_version: u64,
    routing_id_hex: String,
    node_generation: Number,
    nonce: String,
    renewed_unix_ms: Number,
}

impl LeaseRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Bytes {
        json(&LeaseJson {
            record_version: 1,
            routing_id_hex: self.node.rid.to_hex(),
            node_generation: Number(self.node.generation.get()),
            nonce: format!("{:032x}", self.nonce),
            renewed_unix_ms: Number(self.renewed_unix_ms),
        })
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: LeaseJson = parse(bytes)?;
        if record.record_version != 1 {
            return Err(RecordError::Version(record.record_version));
        }
        Ok(Self {
            node: NodeFence {
                rid: RoutingId::from_hex(&record.routing_id_hex).ok_or(RecordError::Field("routingIdHex"))?,
                generation: NodeGeneration::new(record.node_generation.0)
                    .map_err(|_| RecordError::Field("nodeGeneration"))?,
            },
            nonce: u128::from_str_radix(&record.nonce, 16).map_err(|_| RecordError::Field("nonce"))?,
            renewed_unix_ms: record.renewed_unix_ms.0,
        })
    }
}

/// A node's descriptor: what it offers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DescriptorRecord {
    /// The run that wrote it.
    pub generation: NodeGeneration,
    /// Its owner pair.
    pub owner: OwnerPair,
    /// Where peers can reach it.
    pub endpoint: String,
    /// The application's version.
    pub application_version: i64,
    /// The types that it offers.
    pub types: Vec<TypeName>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DescriptorJson {
    record_version: u64,
    node_generation: Number,
    owner_id: String,
    owner_lease_generation: Number,
    endpoint: String,
    application_version: String,
    types: Vec<String>,
}

impl DescriptorRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Bytes {
        json(&DescriptorJson {
            record_version: 1,
            node_generation: Number(self.generation.get()),
            owner_id: self.owner.owner.as_str().to_owned(),
            owner_lease_generation: Number(self.owner.lease.get()),
            endpoint: self.endpoint.clone(),
            application_version: self.application_version.to_string(),
            types: self.types.iter().map(|name| name.as_str().to_owned()).collect(),
        })
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: DescriptorJson = parse(bytes)?;
        if record.record_version != 1 {
            return Err(RecordError::Version(record.record_version));
        }
        let types: Result<Vec<_>, _> = record.types.iter().map(|name| TypeName::new(name)).collect();
        Ok(Self {
            generation: NodeGeneration::new(record.node_generation.0)
                .map_err(|_| RecordError::Field("nodeGeneration"))?,
            owner: OwnerPair {
                owner: OwnerId::new(&record.owner_id).map_err(|_| RecordError::Field("ownerId"))?,
                lease: LeaseGeneration::new(record.owner_lease_generation.0)
                    .map_err(|_| RecordError::Field("ownerLeaseGeneration"))?,
            },
            endpoint: record.endpoint,
            application_version: record
                .application_version
                .parse()
                .map_err(|_| RecordError::Field("applicationVersion"))?,
            types: types.map_err(|_| RecordError::Field("types"))?,
        })
    }
}

/// The count of capacity in use under one owner pair. Written only where a limit is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CapacityRecord {
    /// Objects reserved or active.
    pub used: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CapacityCountJson {
    record_version: u64,
    used: Number,
}

impl CapacityRecord {
    /// The record's bytes.
    pub fn encode(self) -> Bytes {
        json(&CapacityCountJson { record_version: 1, used: Number(self.used) })
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: CapacityCountJson = parse(bytes)?;
        if record.record_version != 1 {
            return Err(RecordError::Version(record.record_version));
        }
        Ok(Self { used: record.used.0 })
    }
}

/// Serialising these plain structures cannot fail; an empty value, which nothing reads as a record, stands for the
/// impossible.
fn json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_default()
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RecordError> {
    // Checked for UTF-8 once here, not once more at each string.
    let text = core::str::from_utf8(bytes).map_err(|error| RecordError::Json(error.to_string()))?;
    serde_json::from_str(text).map_err(|error| RecordError::Json(error.to_string()))
}
