//! Mutual TLS between nodes. Who a peer is follows from its certificate alone: one name of it is the routing id of the
//! node, and a hello of any other node on that connection is refused by the link.

use crate::wire::Wire;
use rehome::id::RoutingId;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What the URI in a node's certificate begins with; the routing id follows.
const PREFIX: &str = "rehome:node:";

/// A node's certificate, its key, and whom the node trusts.
///
/// A node is its certificate: one of the certificate's alternative names is the URI `rehome:node:` and the routing id,
/// and there is exactly one such name. In the routing id ASCII letters and digits and `-`, `.`, `_` and `~` stand for
/// themselves; every other byte is `%` and two upper-case hex digits. See [`Tls::node_uri`].
///
/// Both sides of a connection must show a certificate for both client and server use that chains up to one of the
/// authorities. Host names play no role, nor does revocation: let certificates live shortly. TLS 1.3 only.
#[derive(Clone, Debug)]
pub struct Tls {
    rid: RoutingId,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The files do not contain what they must.
    #[error("cannot read the {what}: {detail}")]
    Pem {
        /// Which of them.
        what: &'static str,
        /// Why.
        detail: String,
    },
    /// The certificate names no node.
    #[error("the certificate: {0}")]
    Identity(#[from] IdentityError),
    /// The certificate is another node's.
    #[error("the certificate is of node {certificate}, not of {host}")]
    OtherNode {
        /// Whom it names.
        certificate: RoutingId,
        /// Who this host is.
        host: RoutingId,
    },
    /// The certificate, its key and the authorities do not fit together.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// There is no authority, or it cannot be used.
    #[error("the authorities: {0}")]
    Authorities(String),
}

/// Why a certificate names no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// There is none.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// It cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// It has no name that begins with `rehome:node:`.
    #[error("it names no node")]
    NoName,
    /// It has several, and could be used for any.
    #[error("it names several nodes")]
    SeveralNames,
    /// The name is no routing id in the one form that it has.
    #[error("its node name is not in the canonical form")]
    BadName,
}

impl Tls {
    /// From a certificate with the chain that leads to an authority, its key, and the authorities.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        let rid = identity(Some(&chain))?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| TlsError::Authorities(error.to_string()))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())?;
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyNode { roots, provider }))
            .with_client_auth_cert(chain, key)?;
        // Connections live long; each proves anew who is there.
        client.resumption = Resumption::disabled();
        Ok(Self { rid, server: Arc::new(server), client: Arc::new(client) })
    }

    /// The same from PEM.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn from_pem(chain: &[u8], key: &[u8], authorities: &[u8]) -> Result<Self, TlsError> {
        let certificates = |what, pem| {
            CertificateDer::pem_slice_iter(pem)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| TlsError::Pem { what, detail: error.to_string() })
        };
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| TlsError::Pem { what: "key", detail: error.to_string() })?;
        Self::new(certificates("certificate", chain)?, key, certificates("authorities", authorities)?)
    }

    /// Whom the certificate names.
    pub const fn node(&self) -> &RoutingId {
        &self.rid
    }

    /// The URI that a certificate of the node `rid` must have among its alternative names.
    pub fn node_uri(rid: &RoutingId) -> String {
        let mut uri = String::from(PREFIX);
        for byte in rid.as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(*byte)),
                _ => {
                    let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'A' + nibble - 10 });
                    uri.extend(['%', digit(byte >> 4), digit(byte & 15)]);
                }
            }
        }
        uri
    }

    pub(crate) async fn accepted(&self, stream: TcpStream) -> io::Result<(Wire, RoutingId)> {
        let stream = TlsAcceptor::from(Arc::clone(&self.server)).accept(stream).await?;
        let rid = identity(stream.get_ref().1.peer_certificates()).map_err(invalid)?;
        Ok((Wire::Stream(Box::new(stream)), rid))
    }

    pub(crate) async fn dialed(&self, stream: TcpStream) -> io::Result<(Wire, RoutingId)> {
        // An address sends no name along, and none is verified.
        let name = ServerName::IpAddress(stream.peer_addr()?.ip().into());
        let stream = TlsConnector::from(Arc::clone(&self.client)).connect(name, stream).await?;
        let rid = identity(stream.get_ref().1.peer_certificates()).map_err(invalid)?;
        Ok((Wire::Stream(Box::new(stream)), rid))
    }
}

fn invalid(error: IdentityError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The node that the first certificate of a verified chain names.
fn identity(chain: Option<&[CertificateDer<'_>]>) -> Result<RoutingId, IdentityError> {
    let first = chain.and_then(<[_]>::first).ok_or(IdentityError::NoCertificate)?;
    let certificate = webpki::EndEntityCert::try_from(first).map_err(|_| IdentityError::Unreadable)?;
    let mut names = certificate.valid_uri_names().filter(|name| name.starts_with(PREFIX));
    let name = names.next().ok_or(IdentityError::NoName)?;
    if names.next().is_some() {
        return Err(IdentityError::SeveralNames);
    }
    let rid = decode(name.as_bytes().get(PREFIX.len()..).unwrap_or_default()).ok_or(IdentityError::BadName)?;
    // Two spellings of one node would be two names that compare unequal somewhere.
    if Tls::node_uri(&rid) == name { Ok(rid) } else { Err(IdentityError::BadName) }
}

fn decode(mut name: &[u8]) -> Option<RoutingId> {
    let mut rid = Vec::with_capacity(name.len());
    while let Some((byte, rest)) = name.split_first() {
        if *byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            rid.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            name = after;
        } else {
            rid.push(*byte);
            name = rest;
        }
    }
    RoutingId::new(rid).ok()
}

/// Accepts whoever an authority has certified: which node it is matters only afterwards.
#[derive(Debug)]
struct AnyNode {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyNode {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
