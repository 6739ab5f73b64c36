//! PNG files for tests.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [kind.as_slice(), data].concat();
    let mut crc = Crc::new();
    crc.update(&body);
    [&(data.len() as u32).to_be_bytes(), body.as_slice(), &crc.sum().to_be_bytes()].concat()
}

/// A PNG with unfiltered rows. `colour` is 0 for grey, 2 for RGB, 6 for RGB with transparency.
pub fn png(width: u32, height: u32, colour: u8, pixels: &[u8]) -> Vec<u8> {
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, colour, 0, 0, 0]);
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    for row in pixels.chunks(pixels.len() / height as usize) {
        packed.write_all(&[0]).unwrap();
        packed.write_all(row).unwrap();
    }
    let data = packed.finish().unwrap();
    let parts = [chunk(b"IHDR", &header), chunk(b"IDAT", &data), chunk(b"IEND", b"")];
    [b"\x89PNG\r\n\x1a\n".to_vec(), parts.concat()].concat()
}
