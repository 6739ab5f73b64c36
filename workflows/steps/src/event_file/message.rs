//! Events: the subset of their protocol buffers that scalars need.

use super::record::encode_record;

/// A value of a scalar.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// The time in seconds since 1970.
    pub wall_time: f64,
    /// The x axis.
    pub step: i64,
    /// The name.
    pub tag: String,
    /// The value.
    pub value: f64,
}

/// A value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire<'a> {
    /// A variable-length number.
    Number(u64),
    /// A text, a message, or a number of 4 or 8 bytes.
    Bytes(&'a [u8]),
}

/// Reads the fields of a message of protocol buffers. `None` means that the bytes are not a message.
#[derive(Debug)]
pub struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    /// For these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> MessageReader<'a> {
        MessageReader(bytes)
    }

    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The next field; `Some(None)` at the end.
    pub fn next_field(&mut self) -> Option<Option<(u64, Wire<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.read_varint()?;
        let value = match key & 7 {
            0 => Wire::Number(self.read_varint()?),
            1 => Wire::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.read_varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Bytes(self.take(4)?),
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }
}

fn double(bytes: &[u8]) -> Option<f64> {
    Some(f64::from_le_bytes(bytes.try_into().ok()?))
}

fn float(bytes: &[u8]) -> Option<f64> {
    Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?)))
}

/// The scalars of an `Event`; `None` if the bytes are not an event.
pub(super) fn decode_event(content: &[u8]) -> Option<Vec<Scalar>> {
    let mut reader = MessageReader(content);
    let (mut wall_time, mut step, mut values) = (0.0, 0, Vec::new());
    while let Some((field, value)) = reader.next_field()? {
        match (field, value) {
            (1, Wire::Bytes(bytes)) => wall_time = double(bytes)?,
            (2, Wire::Number(number)) => step = number.cast_signed(),
            (5, Wire::Bytes(summary)) => values.extend(decode_summary(summary)?),
            _ => {}
        }
    }
    Some(values.into_iter().map(|(tag, value)| Scalar { wall_time, step, tag, value }).collect())
}

fn decode_summary(content: &[u8]) -> Option<Vec<(String, f64)>> {
    let mut reader = MessageReader(content);
    let mut values = Vec::new();
    while let Some((field, value)) = reader.next_field()? {
        if let (1, Wire::Bytes(value)) = (field, value) {
            values.extend(decode_value(value)?);
        }
    }
    Some(values)
}

/// A `Summary.Value`: `Some(None)` if it is not a scalar.
fn decode_value(content: &[u8]) -> Option<Option<(String, f64)>> {
    let mut reader = MessageReader(content);
    let (mut tag, mut value) = (String::new(), None);
    while let Some((field, wire)) = reader.next_field()? {
        match (field, wire) {
            (1, Wire::Bytes(bytes)) => tag = String::from_utf8(bytes.to_vec()).ok()?,
            (2, Wire::Bytes(bytes)) => value = Some(float(bytes)?),
            // A tensor with one number, as TensorFlow 2 writes scalars. Texts and pictures have other types.
            (8, Wire::Bytes(tensor)) => value = decode_tensor(tensor)?,
            _ => {}
        }
    }
    Some(value.map(|value| (tag, value)))
}

/// A `TensorProto` with one number: `Some(None)` if it is something else.
fn decode_tensor(content: &[u8]) -> Option<Option<f64>> {
    let mut reader = MessageReader(content);
    let (mut kind, mut number, mut raw) = (0, None, None);
    while let Some((field, wire)) = reader.next_field()? {
        match (field, wire) {
            (1, Wire::Number(dtype)) => kind = dtype,
            (4, Wire::Bytes(bytes)) => raw = Some(bytes),
            (5, Wire::Bytes(bytes)) => number = float(bytes),
            (6, Wire::Bytes(bytes)) => number = double(bytes),
            _ => {}
        }
    }
    let of_raw = |bytes: &[u8]| if kind == 1 { float(bytes) } else { double(bytes) };
    Some(match kind {
        1 | 2 => number.or_else(|| raw.and_then(of_raw)),
        _ => None,
    })
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn begin_event(wall_time: f64) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend(wall_time.to_le_bytes());
    event
}

/// The event with the version of the file format.
pub(super) fn encode_version_event(wall_time: f64) -> Vec<u8> {
    let mut event = begin_event(wall_time);
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

pub(super) fn encode_scalar_event(scalar: &Scalar) -> Vec<u8> {
    let mut value = Vec::new();
    put_bytes(&mut value, 1, scalar.tag.as_bytes());
    value.push(2 << 3 | 5);
    value.extend((scalar.value as f32).to_le_bytes());
    let mut summary = Vec::new();
    put_bytes(&mut summary, 1, &value);
    let mut event = begin_event(scalar.wall_time);
    event.push(2 << 3);
    put_varint(&mut event, scalar.step.cast_unsigned());
    put_bytes(&mut event, 5, &summary);
    event
}

/// The record of a text in Markdown, which TensorBoard shows on its page of texts.
#[must_use]
pub fn encode_text(wall_time: f64, tag: &str, text: &str) -> Vec<u8> {
    let (mut plugin, mut metadata, mut tensor, mut value, mut summary) = (vec![], vec![], vec![], vec![], vec![]);
    put_bytes(&mut plugin, 1, b"text");
    put_bytes(&mut metadata, 1, &plugin);
    // A tensor of texts without dimensions.
    tensor.extend([1 << 3, 7]);
    put_bytes(&mut tensor, 2, &[]);
    put_bytes(&mut tensor, 8, text.as_bytes());
    put_bytes(&mut value, 1, tag.as_bytes());
    put_bytes(&mut value, 9, &metadata);
    put_bytes(&mut value, 8, &tensor);
    put_bytes(&mut summary, 1, &value);
    let mut event = begin_event(wall_time);
    put_bytes(&mut event, 5, &summary);
    encode_record(&event)
}
