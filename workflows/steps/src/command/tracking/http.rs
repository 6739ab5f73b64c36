//! The subset of HTTP/1.1 that MLflow clients use.

use std::io::{self, BufRead, Read, Write};

/// The longest line of a header, in bytes.
const LONGEST_LINE: u64 = 64 << 10;
/// The maximum number of header lines.
const MOST_LINES: usize = 200;
/// The largest body, in bytes. Uploaded files are in memory while they arrive.
const LARGEST_BODY: u64 = 4 << 30;

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub method: String,
    /// Decoded, without the query.
    pub path: String,
    /// The query as sent.
    pub query: String,
    /// The bearer token.
    pub token: Option<String>,
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Reads a request; `None` if the connection has ended. The body of a request without this token is not read, since any process of
/// the machine can send one; the connection cannot be used afterwards.
pub(super) fn read_request(reader: &mut impl BufRead, token: &str) -> io::Result<Option<Request>> {
    let Some(first) = read_line(reader)? else { return Ok(None) };
    let mut words = first.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Err(broken("no request line")) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: method.to_owned(),
        path: decode_percent(path),
        query: query.to_owned(),
        token: None,
        body: Vec::new(),
    };
    let (mut length, mut chunked) = (0, false);
    for _ in 0..MOST_LINES {
        let line = read_line(reader)?.ok_or_else(|| broken("the head is not complete"))?;
        if line.is_empty() {
            if request.token.as_deref() == Some(token) {
                request.body = if chunked { read_chunks(reader)? } else { read_bytes(reader, length)? };
            }
            return Ok(Some(request));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| broken("a line of the head has no colon"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().map_err(|_| broken("the length is not a number"))?,
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            "authorization" => request.token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    Err(broken("the head has too many lines"))
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if Read::take(&mut *reader, LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(broken("a line is too long or not complete"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map(Some).map_err(|_| broken("the head is not UTF-8"))
}

fn read_bytes(reader: &mut impl BufRead, length: u64) -> io::Result<Vec<u8>> {
    if length > LARGEST_BODY {
        return Err(broken("the body is too large"));
    }
    let mut bytes = Vec::new();
    match Read::take(&mut *reader, length).read_to_end(&mut bytes)? as u64 == length {
        true => Ok(bytes),
        false => Err(broken("the body is not complete")),
    }
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?.ok_or_else(|| broken("the body is not complete"))?;
        let length = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(length, 16).map_err(|_| broken("the length of a chunk is not a number"))?;
        if length > LARGEST_BODY - body.len() as u64 {
            return Err(broken("the body is too large"));
        }
        body.extend(read_bytes(reader, length)?);
        // Each chunk, including the last one, is followed by an empty line.
        if read_line(reader)?.is_none_or(|line| !line.is_empty()) {
            return Err(broken("a chunk does not have the length that it declares"));
        }
        if length == 0 {
            return Ok(body);
        }
    }
}

/// Decodes percent escapes such as `%2F`. A `%` without two hexadecimal digits is kept.
pub(super) fn decode_percent(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let code = code.filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        decoded.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Writes an answer.
pub(super) fn write_answer(mut stream: impl Write, answer: &Answer) -> io::Result<()> {
    let Answer { status, kind, body } = answer;
    let head = format!("HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat())?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_follow_each_other_on_a_connection() {
        let sent = "POST /a%2Fb/c?x=1 HTTP/1.1\r\nContent-Length: 3\r\nAuthorization: Bearer t\r\n\r\nabcPUT /d HTTP/1.1\r\n\
                    Authorization: Bearer t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n1\r\nz\r\n0\r\n\r\nGET /e HTTP/1.1\r\n\r\n";
        let mut reader = sent.as_bytes();
        let mut next = || read_request(&mut reader, "t").unwrap();
        let first = next().unwrap();
        assert_eq!((first.method.as_str(), first.path.as_str(), first.query.as_str()), ("POST", "/a/b/c", "x=1"));
        assert_eq!((first.token.as_deref(), first.body.as_slice()), (Some("t"), &b"abc"[..]));
        assert_eq!(next().unwrap().body, b"xyz");
        assert_eq!(next().unwrap().path, "/e");
        assert_eq!(next(), None);
    }

    #[test]
    fn a_malformed_request_ends_the_connection() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
        for wrong in [
            "GET\r\n\r\n",
            "GET / HTTP/1.1\r\nx\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "GET / HTTP/1.1\r\nAuthorization: Bearer t\r\nContent-Length: 5\r\n\r\nab",
            "GET / HTTP/1.1\r\nAuthorization: Bearer t\r\nContent-Length: 18446744073709551615\r\n\r\nab",
            "PUT / H\r\nauthorization: Bearer t\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "PUT / H\r\nauthorization: Bearer t\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\nffffffffffffffff\r\n",
            &long,
        ] {
            assert!(read_request(&mut wrong.as_bytes(), "t").is_err(), "{wrong:.40}");
        }
        assert_eq!(decode_percent("a%2fb%zz%+f%"), "a/b%zz%+f%");
    }

    #[test]
    fn the_body_of_a_request_without_the_token_is_not_read() {
        for other in ["", "Authorization: Bearer u\r\n"] {
            let sent = format!("PUT /a HTTP/1.1\r\n{other}Content-Length: 3\r\n\r\nabc");
            let mut reader = sent.as_bytes();
            let request = read_request(&mut reader, "t").unwrap().unwrap();
            assert_eq!((request.body.as_slice(), reader), (&b""[..], &b"abc"[..]));
        }
    }
}
