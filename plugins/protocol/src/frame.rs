//! Frames: a little-endian `u32` length, then that many bytes of JSON.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest frame that either side accepts, in bytes. A longer frame indicates a faulty peer, since tensors and
/// artifacts are never sent over the pipe.
pub const MAX_FRAME: u32 = 4 * 1024 * 1024;

/// How much of an invalid message an error quotes, in characters.
const EXCERPT: usize = 120;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The pipe broke, or ended inside a frame.
    #[error("the pipe failed: {0}")]
    Io(#[from] io::Error),
    /// Text in place of a frame's length. Contains the start of the text, quoted.
    #[error("text was received instead of a message: {0}")]
    Text(String),
    /// The announced length exceeds [`MAX_FRAME`].
    #[error("a message declares {0} bytes, and at most {MAX_FRAME} are allowed")]
    TooLong(u32),
    /// The bytes are not a message of this protocol.
    #[error("not a message of this protocol ({error}): {text}")]
    Malformed {
        /// What is wrong with it.
        error: serde_json::Error,
        /// The start of the bytes, quoted.
        text: String,
    },
}

/// The start of an invalid message, quoted and escaped for an error.
#[must_use]
pub fn quote_excerpt(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(4 * EXCERPT)];
    let text = String::from_utf8_lossy(head);
    let cut: String = text.chars().take(EXCERPT).collect();
    let more = if cut.len() < text.len() || head.len() < bytes.len() { "\u{2026}" } else { "" };
    format!("{cut:?}{more}")
}

/// Decodes the first four bytes of a frame.
///
/// # Errors
/// [`FrameError::Text`] if they are printable: read as a length, four such bytes would mean over 150 MB, so text is
/// never taken for a frame. [`FrameError::TooLong`] if they mean more than [`MAX_FRAME`].
pub fn frame_length(head: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(head);
    if length <= MAX_FRAME {
        return Ok(length as usize);
    }
    let is_text = head.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..=0xf4));
    Err(if is_text { FrameError::Text(quote_excerpt(&head)) } else { FrameError::TooLong(length) })
}

/// Reads a frame's body.
///
/// # Errors
/// [`FrameError::Malformed`].
pub fn parse_frame<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(|error| FrameError::Malformed { error, text: quote_excerpt(body) })
}

/// One message as the bytes of a frame.
///
/// # Errors
/// [`FrameError::TooLong`] if the message is larger than [`MAX_FRAME`]; [`FrameError::Malformed`] if it cannot be
/// written as JSON, which does not happen for messages of this crate.
pub fn encode_frame<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(|error| FrameError::Malformed { error, text: String::new() })?;
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length));
    }
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Writes one message and flushes.
///
/// # Errors
/// [`FrameError::Io`] if the pipe is closed, and those of [`encode_frame`].
pub fn write_frame<T: Serialize>(out: &mut impl Write, message: &T) -> Result<(), FrameError> {
    out.write_all(&encode_frame(message)?)?;
    out.flush()?;
    Ok(())
}

/// Reads one message; `None` when the peer closed the pipe between two frames.
///
/// # Errors
/// See [`FrameError`]. After an error the stream's position is lost: stop reading.
pub fn read_frame<T: DeserializeOwned>(input: &mut impl Read) -> Result<Option<T>, FrameError> {
    let mut head = [0_u8; 4];
    let mut filled = 0;
    while filled < head.len() {
        match input.read(&mut head[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let mut body = vec![0; frame_length(head)?];
    input.read_exact(&mut body)?;
    parse_frame(&body).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_pipe() {
        let mut pipe = Vec::new();
        write_frame(&mut pipe, &vec![1.5, 0.1]).unwrap();
        write_frame(&mut pipe, &vec![2.0]).unwrap();
        let mut input = pipe.as_slice();
        assert_eq!(read_frame::<Vec<f64>>(&mut input).unwrap(), Some(vec![1.5, 0.1]));
        assert_eq!(read_frame::<Vec<f64>>(&mut input).unwrap(), Some(vec![2.0]));
        assert_eq!(read_frame::<Vec<f64>>(&mut input).unwrap(), None);
    }

    fn read_error(input: &[u8]) -> String {
        read_frame::<Vec<f64>>(&mut &*input).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_frame_is_quoted() {
        assert_eq!(read_error(b"hello, world"), "text was received instead of a message: \"hell\"");
        assert_eq!(read_error("über".as_bytes()), "text was received instead of a message: \"übe\"");
        assert_eq!(
            read_error(&[0, 0, 0, 0xff]),
            "a message declares 4278190080 bytes, and at most 4194304 are allowed"
        );
        assert_eq!(
            read_error(b"\x03\0\0\0[]x"),
            "not a message of this protocol (trailing characters at line 1 column 3): \"[]x\""
        );
    }

    #[test]
    fn an_excerpt_is_short_whatever_it_is_of() {
        assert_eq!(quote_excerpt(b"a\nb\0"), r#""a\nb\0""#);
        assert!(quote_excerpt(&vec![0xff; MAX_FRAME as usize]).chars().count() < 10 * EXCERPT);
        assert!(quote_excerpt("\u{10ffff}".repeat(4000).as_bytes()).ends_with("\"\u{2026}"));
    }

    #[test]
    fn no_text_announces_an_acceptable_length() {
        for head in [*b"\t\t\t\t", *b"\n\n\n\n", *b"    ", *b"~~~~", *b"0 \r\n"] {
            assert!(matches!(frame_length(head), Err(FrameError::Text(_))), "{head:?}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_not_written() {
        let mut pipe = Vec::new();
        let long = "x".repeat(MAX_FRAME as usize);
        assert!(matches!(write_frame(&mut pipe, &long), Err(FrameError::TooLong(_))));
        assert!(pipe.is_empty());
    }

    #[test]
    fn a_cut_frame_is_an_error_and_not_an_end() {
        let mut pipe = Vec::new();
        write_frame(&mut pipe, &vec![1.5]).unwrap();
        for cut in 1..pipe.len() {
            assert!(read_frame::<Vec<f64>>(&mut &pipe[..cut]).is_err(), "cut at {cut}");
        }
    }
}
