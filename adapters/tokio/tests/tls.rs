//! Mutual TLS over loopback sockets, with certificates made here: who is let in, and as whom.

mod common;

use bytes::Bytes;
use common::{PATIENCE, Probe, Shared, key, message, rid, within};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rehome::id::RoutingId;
use rehome::node::{MoveOutcome, TypeConfig};
use rehome_stores::Memory;
use rehome_tokio::{Host, HostBuilder, IdentityError, Tls, TlsError};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};

/// An authority that certifies nodes.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate with these URIs, and its key, both as PEM.
    fn certify(&self, uris: &[&str]) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("ASCII"))).collect();
        (params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
    }

    fn tls(&self, uris: &[&str], trusts: &Self) -> Result<Tls, TlsError> {
        let (certificate, key) = self.certify(uris);
        Tls::from_pem(certificate.as_bytes(), key.as_bytes(), trusts.pem.as_bytes())
    }

    /// What a node of this mesh has.
    fn node(&self, name: &str) -> Tls {
        self.tls(&[&Tls::node_uri(&rid(name))], self).expect("it fits together")
    }
}

fn builder(name: &str) -> HostBuilder {
    let builder = HostBuilder::new(name, "test").expect("a name");
    builder.object::<Probe>("probe", TypeConfig::default(), Shared::default()).expect("a name")
}

async fn listening(tls: Tls, store: Arc<Memory>) -> (Host, SocketAddr) {
    let left = builder("left").tls(tls).expect("it is left's");
    let left = left.listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let address = left.local_addr().expect("an address");
    let left = left.start(store).await.expect("it starts");
    left.create(key(), "probe", Bytes::new()).await.expect("it is made");
    (left, address)
}

async fn dialing(name: &str, tls: Option<Tls>, address: SocketAddr, store: Arc<Memory>) -> Host {
    let builder = match tls {
        Some(tls) => builder(name).tls(tls).expect("it is its own"),
        None => builder(name),
    };
    builder.peer(address).start(store).await.expect("it starts")
}

/// Whether `left` answers `host`. A host that is not let in waits for a connection until its time is over.
async fn is_let_in(host: &Host) -> bool {
    host.request(key(), message("hit"), std::time::Duration::from_secs(2)).await.is_ok()
}

#[test]
fn objects_move_between_nodes_that_prove_who_they_are() {
    within(async {
        let (authority, store) = (Authority::new(), Arc::new(Memory::new()));
        let (left, address) = listening(authority.node("left"), store.clone()).await;
        let right = dialing("right", Some(authority.node("right")), address, store).await;
        right.request(key(), message("hit"), PATIENCE).await.expect("an answer");
        let moved = left.relocate(key(), rid("right"), None).await.outcome().await;
        assert!(matches!(moved, Ok(MoveOutcome::Moved { .. })), "{moved:?}");
        left.cut_connections().await;
        let answer = left.request(key(), message("hit"), PATIENCE).await.expect("an answer");
        assert_eq!(&answer.bytes[..], b"2 2");
    });
}

#[test]
fn a_large_object_moves_through_tls() {
    within(async {
        let (authority, store) = (Authority::new(), Arc::new(Memory::new()));
        let (left, address) = listening(authority.node("left"), store.clone()).await;
        let right = dialing("right", Some(authority.node("right")), address, store).await;
        right.request(key(), message("hit"), PATIENCE).await.expect("an answer");
        left.delete(key()).await.expect("it goes");
        left.create(key(), "probe", Bytes::from_static(b"8000000")).await.expect("it is made");
        let moved = left.relocate(key(), rid("right"), None).await.outcome().await;
        assert!(matches!(moved, Ok(MoveOutcome::Moved { .. })), "{moved:?}");
    });
}

#[test]
fn a_stranger_is_not_let_in() {
    within(async {
        let (authority, stranger, store) = (Authority::new(), Authority::new(), Arc::new(Memory::new()));
        let (_left, address) = listening(authority.node("left"), store.clone()).await;
        let uri = Tls::node_uri(&rid("right"));
        // It trusts the mesh, and the mesh does not trust it.
        let tls = stranger.tls(&[&uri], &authority).expect("it fits together");
        let right = dialing("right", Some(tls), address, store).await;
        assert!(!is_let_in(&right).await);
        // A node of the mesh does not talk to a stranger that listens either.
        let tls = stranger.tls(&[&Tls::node_uri(&rid("left"))], &authority).expect("it fits together");
        let false_store = Arc::new(Memory::new());
        let (_false_left, false_address) = listening(tls, false_store.clone()).await;
        let third = dialing("third", Some(authority.node("third")), false_address, false_store).await;
        assert!(!is_let_in(&third).await);
    });
}

#[test]
fn a_node_that_claims_the_routing_id_of_another_is_not_let_in() {
    within(async {
        let (authority, store) = (Authority::new(), Arc::new(Memory::new()));
        let (_left, address) = listening(authority.node("left"), store.clone()).await;
        // The builder sees it, where it is honest ...
        let refused = builder("mallory").tls(authority.node("right")).map(drop);
        assert!(matches!(refused, Err(TlsError::OtherNode { .. })), "{refused:?}");
        // ... and the link where it is not: this host says "mallory" in its hello, with a certificate of "right".
        let mallory = dialing("mallory", None, relay(address, &authority, "right").await, store.clone()).await;
        assert!(!is_let_in(&mallory).await);
        // The same way round the certificate is enough where hello and certificate agree.
        let right = dialing("right", None, relay(address, &authority, "right").await, store).await;
        right.request(key(), message("hit"), PATIENCE).await.expect("an answer");
    });
}

#[test]
fn a_node_without_tls_is_not_let_in() {
    within(async {
        let (authority, store) = (Authority::new(), Arc::new(Memory::new()));
        let (_left, address) = listening(authority.node("left"), store.clone()).await;
        let plain = dialing("plain", None, address, store).await;
        assert!(!is_let_in(&plain).await);
        let mut silent = TcpStream::connect(address).await.expect("it listens");
        silent.try_write(b"this is no handshake").expect("it fits");
        // The connection ends; with what bytes does not matter.
        let _ = silent.read_to_end(&mut Vec::new()).await;
    });
}

#[test]
fn a_certificate_names_exactly_one_node_in_one_spelling() {
    let authority = Authority::new();
    let named = |uris: &[&str]| authority.tls(uris, &authority).map(|tls| tls.node().clone());
    let identity = |uris: &[&str]| match named(uris) {
        Err(TlsError::Identity(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(named(&["https://example.org/", "rehome:node:left"]).expect("a name"), rid("left"));
    assert_eq!(identity(&["https://example.org/"]), IdentityError::NoName);
    assert_eq!(identity(&["rehome:node:left", "rehome:node:right"]), IdentityError::SeveralNames);
    assert_eq!(identity(&["rehome:node:"]), IdentityError::BadName);
    assert_eq!(identity(&["rehome:node:%6Ceft"]), IdentityError::BadName, "an escape that is not needed");
    assert_eq!(identity(&["rehome:node:%c3%bc"]), IdentityError::BadName, "lower-case digits");
    assert_eq!(identity(&["rehome:node:%+1"]), IdentityError::BadName);
    assert_eq!(identity(&["rehome:node:a%4"]), IdentityError::BadName);
    let odd = RoutingId::new(vec![0, b'/', b'%', 0xff, b'~']).expect("an id");
    assert_eq!(Tls::node_uri(&odd), "rehome:node:%00%2F%25%FF~");
    assert_eq!(named(&[&Tls::node_uri(&odd)]).expect("a name"), odd);
    let none = Tls::from_pem(b"", b"", b"").map(drop);
    assert!(matches!(none, Err(TlsError::Pem { what: "key", .. })), "{none:?}");
}

/// Speaks TLS to `to` with a certificate of the node `name`, on behalf of whoever connects without TLS.
async fn relay(to: SocketAddr, authority: &Authority, name: &str) -> SocketAddr {
    let (certificate, key) = authority.certify(&[&Tls::node_uri(&rid(name))]);
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has it")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsAll))
        .with_client_auth_cert(vec![certificate], key)
        .expect("a key");
    let connector = TlsConnector::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let stream = TcpStream::connect(to).await.expect("it listens");
            let name = ServerName::IpAddress(to.ip().into());
            let mut far = connector.connect(name, stream).await.expect("the certificate is good");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    address
}

/// A client that does not care whom it talks to.
#[derive(Debug)]
struct TrustsAll;

impl ServerCertVerifier for TrustsAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
