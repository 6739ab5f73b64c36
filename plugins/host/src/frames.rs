//! Reads and writes frames asynchronously.

use std::time::Duration;

use assay_protocol::{FrameError, Request, encode_frame, frame_length, quote_excerpt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

/// How long to wait for the rest of a text that arrived instead of a message, in order to quote more of it.
const REST_OF_TEXT: Duration = Duration::from_millis(200);

/// The reports of an executor.
pub(crate) struct Frames<R> {
    input: BufReader<R>,
    body: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(input: R) -> Self {
        Frames { input: BufReader::with_capacity(64 * 1024, input), body: Vec::new() }
    }

    /// The body of the next frame; `None` at the end of the pipe. Not cancellation-safe.
    ///
    /// # Errors
    /// An end inside a frame is [`FrameError::Io`] with [`std::io::ErrorKind::UnexpectedEof`].
    pub(crate) async fn next(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let mut head = [0_u8; 4];
        let first = self.input.read(&mut head).await?;
        if first == 0 {
            return Ok(None);
        }
        self.input.read_exact(&mut head[first..]).await?;
        let length = match frame_length(head) {
            Err(FrameError::Text(_)) => return Err(FrameError::Text(self.quote_text(head).await)),
            length => length?,
        };
        self.body.resize(length, 0);
        self.input.read_exact(&mut self.body).await?;
        Ok(Some(&self.body))
    }

    /// The first line of a text in place of a frame, as far as it arrives in time.
    async fn quote_text(&mut self, head: [u8; 4]) -> String {
        let mut text = head.to_vec();
        let mut more = [0; 512];
        if let Ok(Ok(count)) = tokio::time::timeout(REST_OF_TEXT, self.input.read(&mut more)).await {
            text.extend_from_slice(more.get(..count).unwrap_or_default());
        }
        let first_line = text.trim_ascii_start().split(|byte| *byte == b'\n').next();
        quote_excerpt(first_line.unwrap_or_default())
    }
}

/// Writes the requests of the queue, and closes the pipe at the queue's end. If the peer does not read, this ends
/// early; the peer's reports and exit explain why.
pub(crate) async fn write_requests(mut pipe: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Request>) {
    while let Some(request) = queue.recv().await {
        let Ok(frame) = encode_frame(&request) else { return };
        if pipe.write_all(&frame).await.is_err() || pipe.flush().await.is_err() {
            return;
        }
    }
}
