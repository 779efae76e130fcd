//! Certificates for tests: an authority with a server and a client of its own, and another authority.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::PathBuf;
use tempfile::TempDir;

/// `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key` and `other.pem`, in a folder.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    pub(crate) fn make() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let authority = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            (Issuer::new(params, key), certificate.pem())
        };
        let (issuer, ca) = authority("tests");
        let (_, other) = authority("another");
        made.write("ca.pem", &ca);
        made.write("other.pem", &other);
        for name in ["server", "client"] {
            let mut params =
                CertificateParams::new(vec![String::from("localhost"), String::from("127.0.0.1")]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            made.write(&format!("{name}.pem"), &certificate.pem());
            made.write(&format!("{name}.key"), &key.serialize_pem());
        }
        made
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
}
