//! The event files of TensorBoard: scalars are read while a program writes them, and written for exports.
//!
//! A file is a sequence of records: the length of the content as a little-endian `u64`, its checksum, the content, its checksum. The
//! content is an `Event` in protocol buffers, of which this module implements the few fields that scalars need. Source of the
//! format: TensorFlow, `core/lib/io/record_writer.h`, `core/util/event.proto` and `core/framework/summary.proto`.

mod message;
mod record;

pub use message::{MessageReader, Scalar, Wire, encode_text};
pub use record::{EventFileError, EventReader, encode_header, encode_scalar};
