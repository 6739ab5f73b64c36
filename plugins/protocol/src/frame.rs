//! Frames: a little-endian `u32` length, then that many bytes of JSON.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest frame either side accepts, in bytes. A longer one is a broken peer, not a big message: tensors and
/// artifacts never cross the pipe.
pub const MAX_FRAME: u32 = 4 * 1024 * 1024;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The pipe broke, or ended inside a frame.
    #[error("the pipe failed: {0}")]
    Io(#[from] io::Error),
    /// The announced length exceeds [`MAX_FRAME`]; most often text was printed where frames belong.
    #[error("a frame of {0} bytes was announced (at most {MAX_FRAME} are allowed); its first bytes read {1:?} as text")]
    TooLong(u32, String),
    /// The bytes are no message of this protocol.
    #[error("not a message of this protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Writes one message and flushes.
///
/// # Errors
/// [`FrameError::Io`] if the pipe is gone, [`FrameError::TooLong`] if the message is larger than [`MAX_FRAME`].
pub fn write_frame<T: Serialize>(out: &mut impl Write, message: &T) -> Result<(), FrameError> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length, String::new()));
    }
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&body)?;
    out.flush()?;
    Ok(())
}

/// Reads one message; `None` when the peer closed the pipe between two frames.
///
/// # Errors
/// See [`FrameError`]. After an error the stream's position is lost: give the peer up.
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
    let length = u32::from_le_bytes(head);
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length, String::from_utf8_lossy(&head).into_owned()));
    }
    let mut body = vec![0; length as usize];
    input.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
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

    #[test]
    fn text_on_the_pipe_is_told_from_a_frame() {
        let error = read_frame::<Vec<f64>>(&mut b"hello, world".as_slice()).unwrap_err();
        assert!(error.to_string().contains("\"hell\""), "{error}");
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
