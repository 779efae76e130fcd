//! The vector files.

use bytes::Bytes;
use serde_json::Value;

pub struct Vectors {
    pub records: Vec<Vector>,
    /// Name, error and bytes of what is refused.
    pub refused: Vec<(String, String, Bytes)>,
}

pub struct Vector {
    pub name: String,
    pub command: u64,
    /// Whether other runtimes agree on the bytes.
    pub shared: bool,
    pub fields: Value,
    pub bytes: Bytes,
}

impl Vectors {
    pub fn records() -> Self {
        let file = load("records.json");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let records = file["records"].as_array().unwrap().iter().map(|vector| Vector {
            name: text(&vector["name"]),
            command: vector["command"].as_u64().unwrap(),
            shared: vector["shared"].as_bool().unwrap(),
            fields: vector["fields"].clone(),
            bytes: bytes_of(&vector["hex"]),
        });
        let refused = file["refused"].as_array().unwrap().iter();
        let refused = refused.map(|case| (text(&case["name"]), text(&case["error"]), bytes_of(&case["hex"])));
        Self { records: records.collect(), refused: refused.collect() }
    }
}

pub fn load(name: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub fn bytes_of(hex: &Value) -> Bytes {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
