//! Records: framing and checksums.

use super::message::{Scalar, decode_event, encode_scalar_event, encode_version_event};

/// The largest record that is read, in bytes. Images and graphs are also records, and are skipped.
const LARGEST_RECORD: u64 = 256 << 20;
/// Bytes before the content: its length and the checksum of the length.
const HEAD: usize = 12;
/// Bytes after the content: its checksum.
const TAIL: usize = 4;

/// Why a file is not a valid sequence of events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventFileError {
    /// A checksum is wrong.
    #[error("the record at byte {at} is damaged: its checksum is wrong")]
    Checksum {
        /// The start of the record.
        at: u64,
    },
    /// A record is too large.
    #[error("the record at byte {at} has {bytes} bytes, more than 256 MiB")]
    TooLarge {
        /// The start of the record.
        at: u64,
        /// Its length.
        bytes: u64,
    },
    /// A record is not an event.
    #[error("the record at byte {at} is not an event of TensorBoard")]
    NotAnEvent {
        /// The start of the record.
        at: u64,
    },
}

/// Reads a file that may still be written: bytes are appended as they arrive, and complete records become scalars.
#[derive(Debug, Default)]
pub struct EventReader {
    /// The bytes of an incomplete record.
    rest: Vec<u8>,
    /// The position of `rest` in the file.
    at: u64,
}

impl EventReader {
    /// Appends bytes, and returns the scalars of the completed records.
    ///
    /// # Errors
    /// If a record is damaged or is not an event. Later records cannot be read.
    pub fn read_bytes(&mut self, bytes: &[u8]) -> Result<Vec<Scalar>, EventFileError> {
        self.rest.extend_from_slice(bytes);
        let (mut scalars, mut from) = (Vec::new(), 0);
        while let Some(head) = self.rest.get(from..from + HEAD) {
            let at = self.at + from as u64;
            let length = u64::from_le_bytes([head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]]);
            if masked_checksum(&head[..8]).to_le_bytes() != head[8..] {
                return Err(EventFileError::Checksum { at });
            }
            if length > LARGEST_RECORD {
                return Err(EventFileError::TooLarge { at, bytes: length });
            }
            let end = from + HEAD + length as usize;
            let Some(tail) = self.rest.get(end..end + TAIL) else { break };
            let content = &self.rest[from + HEAD..end];
            if masked_checksum(content).to_le_bytes() != tail {
                return Err(EventFileError::Checksum { at });
            }
            scalars.extend(decode_event(content).ok_or(EventFileError::NotAnEvent { at })?);
            from = end + TAIL;
        }
        self.rest.drain(..from);
        self.at += from as u64;
        Ok(scalars)
    }
}

/// The first record of a file.
#[must_use]
pub fn encode_header(wall_time: f64) -> Vec<u8> {
    encode_record(&encode_version_event(wall_time))
}

/// The record of a scalar. Its value is rounded to 32 bits, as TensorBoard stores it.
#[must_use]
pub fn encode_scalar(scalar: &Scalar) -> Vec<u8> {
    encode_record(&encode_scalar_event(scalar))
}

/// A record with this content.
pub(super) fn encode_record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(HEAD + content.len() + TAIL);
    record.extend(length);
    record.extend(masked_checksum(&length).to_le_bytes());
    record.extend(content);
    record.extend(masked_checksum(content).to_le_bytes());
    record
}

/// CRC-32C, rotated and shifted, so that the checksum of data with embedded checksums differs from them.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32 with Castagnoli's polynomial, reflected: 0x82f63b78.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0, |crc, &byte| TABLE[((crc ^ u32::from(byte)) & 0xff) as usize] ^ (crc >> 8))
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut crc, mut bit) = (index as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(tag: &str, step: i64, value: f64) -> Scalar {
        Scalar { wall_time: 1.5e9, step, tag: tag.into(), value }
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn what_is_written_is_read_however_it_arrives() {
        let scalars = [scalar("loss", 1, 0.5), scalar("train/acc", i64::MAX, -2.0), scalar("loss", -3, f64::INFINITY)];
        let mut file = encode_header(1.0);
        file.extend(super::super::encode_text(1.0, "params", "lr = 1"));
        file.extend(scalars.iter().flat_map(encode_scalar));
        assert_eq!(EventReader::default().read_bytes(&file).unwrap(), scalars);
        let mut reader = EventReader::default();
        let mut found = Vec::new();
        for piece in file.chunks(7) {
            found.extend(reader.read_bytes(piece).unwrap());
        }
        assert_eq!(found, scalars);
    }

    #[test]
    fn a_damaged_file_is_named_with_its_place() {
        let good = encode_scalar(&scalar("loss", 1, 0.5));
        for damaged in 0..good.len() {
            let mut file = encode_header(1.0);
            let at = file.len() as u64;
            file.extend(&good);
            file[at as usize + damaged] ^= 1;
            let refused = EventReader::default().read_bytes(&file).unwrap_err();
            assert_eq!(refused, EventFileError::Checksum { at }, "byte {damaged}");
        }
        let nonsense = EventReader::default().read_bytes(&encode_record(&[0xff; 20])).unwrap_err();
        assert_eq!(nonsense, EventFileError::NotAnEvent { at: 0 });
        let length = (1_u64 << 40).to_le_bytes();
        let head = [&length[..], &masked_checksum(&length).to_le_bytes()].concat();
        assert_eq!(
            EventReader::default().read_bytes(&head).unwrap_err(),
            EventFileError::TooLarge { at: 0, bytes: 1 << 40 }
        );
    }
}
