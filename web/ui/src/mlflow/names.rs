//! The names that the server chooses for a run: an id for clients, and a name for people.

use std::io::Read;

use super::error::ApiError;

const FIRST: [&str; 24] = [
    "able", "bold", "brisk", "calm", "clear", "crisp", "eager", "exact", "fair", "fleet", "grand", "keen", "lucid",
    "merry", "mild", "neat", "noble", "quick", "quiet", "sharp", "sleek", "steady", "swift", "warm",
];
const SECOND: [&str; 24] = [
    "ant", "bass", "bear", "colt", "crane", "deer", "dove", "fox", "gull", "hare", "hawk", "jay", "lark", "lynx",
    "mole", "newt", "otter", "owl", "quail", "seal", "shrew", "swan", "wolf", "wren",
];

/// An id for a new run, 128 random bits in hexadecimal, and a name for people from the same bits.
pub(super) fn choose_names() -> Result<(String, String), ApiError> {
    let mut bits = [0_u8; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bits)).map_err(ApiError::internal)?;
    let key = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    let word = |list: &[&'static str; 24], byte: u8| list[usize::from(byte) % list.len()];
    let number = u16::from_le_bytes([bits[2], bits[3]]) % 1000;
    Ok((key, format!("{}-{}-{number}", word(&FIRST, bits[0]), word(&SECOND, bits[1]))))
}
