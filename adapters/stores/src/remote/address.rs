//! Addresses of stores over a network, and the options in them. It opens nothing.

use super::{RemoteError, RemoteOptions};
use std::time::Duration;

/// An address without this crate's own parameters, which are in `options`.
pub(crate) struct Address {
    /// The address as the engine's client may read it.
    pub(crate) rest: String,
    /// Hosts and ports, for people.
    pub(crate) place: String,
    /// Name and password, decoded.
    #[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "other clients read the address themselves"))]
    pub(crate) user: Option<(String, String)>,
    pub(crate) options: RemoteOptions,
}

impl Address {
    pub(crate) fn parse(engine: &'static str, address: &str, mut options: RemoteOptions) -> Result<Self, RemoteError> {
        let wrong = |reason: &str| RemoteError::Address { engine, reason: reason.to_owned() };
        let (scheme, after) = address.split_once("://").ok_or_else(|| wrong("an address begins with SCHEME://"))?;
        let (before, query) = after.split_once('?').map_or((after, None), |(before, query)| (before, Some(query)));
        let authority = before.split('/').next().unwrap_or(before);
        let (user, place) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((user, place)) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                (Some((decoded(name), decoded(password))), place)
            }
        };
        if place.is_empty() {
            return Err(wrong("the address names no host"));
        }
        let mut others = Vec::new();
        for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value);
            let millis = || {
                let number: Option<u64> = value.parse().ok().filter(|millis| *millis > 0);
                number.map(Duration::from_millis).ok_or_else(|| wrong(&format!("{name} is a number of milliseconds")))
            };
            match name {
                "namespace" => options.namespace = value,
                "connect_timeout_ms" => options.connect_timeout = millis()?,
                "operation_timeout_ms" => options.operation_timeout = millis()?,
                "connections" => {
                    options.connections = value.parse().map_err(|_| wrong("connections is a number"))?;
                }
                "ca" => options.ca = Some(value.into()),
                "cert" => options.cert = Some(value.into()),
                "key" => options.key = Some(value.into()),
                _ => others.push(pair),
            }
        }
        check(&options).map_err(wrong)?;
        let mut rest = format!("{scheme}://{before}");
        if !others.is_empty() {
            rest.push('?');
            rest.push_str(&others.join("&"));
        }
        Ok(Self { rest, place: place.to_owned(), user, options })
    }
}

fn check(options: &RemoteOptions) -> Result<(), &'static str> {
    let name = options.namespace.as_bytes();
    let plain = name.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
    if !plain || name.len() > 32 || !name.first().is_some_and(u8::is_ascii_lowercase) {
        return Err("a namespace is 1 to 32 of a-z, 0-9 and _, a letter first");
    }
    if options.connect_timeout.is_zero() || options.operation_timeout.is_zero() {
        return Err("a time-out is longer than nothing");
    }
    if !(1..=256).contains(&options.connections) {
        return Err("there are 1 to 256 connections");
    }
    Ok(())
}

/// Text with its `%XX` decoded. What is none stays as it is.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match (first, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Address, RemoteOptions};
    use std::time::Duration;

    fn parse(address: &str) -> Result<Address, String> {
        Address::parse("engine", address, RemoteOptions::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn own_parameters_are_taken_out_and_the_others_left() {
        let text =
            "postgres://a%40b:p%3Aw@one:1,two:2/db?sslmode=require&namespace=x_1&operation_timeout_ms=250&ca=%2Fca&k=v";
        let address = parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(address.rest, "postgres://a%40b:p%3Aw@one:1,two:2/db?sslmode=require&k=v");
        assert_eq!(address.place, "one:1,two:2");
        assert_eq!(address.user, Some((String::from("a@b"), String::from("p:w"))));
        assert_eq!(address.options.namespace, "x_1");
        assert_eq!(address.options.operation_timeout, Duration::from_millis(250));
        assert_eq!(address.options.ca.as_deref(), Some("/ca".as_ref()));
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_the_password() {
        let long = format!("etcd://h?namespace={}", "n".repeat(33));
        for text in [
            "etcd://u:secret@",
            "etcd://u:secret@h?namespace=",
            "etcd://u:secret@h?namespace=A",
            "etcd://u:secret@h?namespace=1a",
            "etcd://u:secret@h?namespace=a-b",
            "etcd://u:secret@h?connect_timeout_ms=0",
            "etcd://u:secret@h?operation_timeout_ms=soon",
            "etcd://u:secret@h?connections=0",
            "etcd://u:secret@h?connections=257",
            &long,
            "no address",
        ] {
            let Err(error) = parse(text) else { panic!("{text} was accepted") };
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
