//! Deliberate faults at the decisions of the protocol: negative controls for the tests. Each is named where it stands, and
//! is nothing at all in a build without `--cfg rehome_faults`. With it, `REHOME_PLANTED_FAULT` names the one that is on.

/// Whether the deliberate fault of this name is on.
#[cfg(not(rehome_faults))]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// Whether the deliberate fault of this name is on.
#[cfg(rehome_faults)]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is($name)
    };
}

#[cfg(rehome_faults)]
pub(crate) fn is(name: &str) -> bool {
    static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ON.get_or_init(|| std::env::var("REHOME_PLANTED_FAULT").ok()).as_deref() == Some(name)
}
