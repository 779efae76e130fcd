//! `rehome decode`: a record of the wire, field by field.

use crate::Failure;
use bytes::Bytes;
use rehome::wire::{DecodeError, Frames, decode};
use std::io::Read as _;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DecodeArgs {
    /// The record's frames in hex, one argument each; white space is ignored. Without one, standard input is read, one
    /// frame a line.
    frames: Vec<String>,
}

pub(crate) fn run(arguments: &DecodeArgs) -> Result<(), Failure> {
    let frames = if arguments.frames.is_empty() {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(Failure::usage)?;
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    } else {
        arguments.frames.clone()
    };
    let frames: Result<Vec<Bytes>, Failure> = frames.iter().map(|frame| hex(frame)).collect();
    let frames = frames?;
    if frames.is_empty() {
        return Err(Failure::usage("nothing to decode: give a record in hex"));
    }
    let sizes: Vec<usize> = frames.iter().map(Bytes::len).collect();
    match decode(frames.into_iter().map(rehome::Rope::from).collect::<Frames>()) {
        Ok(record) => {
            say!("{} frames of {sizes:?} bytes", sizes.len());
            say!("{record:#?}");
            Ok(())
        }
        Err(DecodeError { kind, offset, field }) => {
            Err(Failure::usage(format!("not a valid record: {kind} at byte {offset}, field '{field}'")))
        }
    }
}

fn hex(text: &str) -> Result<Bytes, Failure> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    let digits = digits.ok_or_else(|| Failure::usage("the record is not hex: only 0-9, a-f and white space"))?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Failure::usage("the record is not hex: it has an odd number of digits"));
    }
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}
