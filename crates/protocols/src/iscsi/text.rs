//! Text in PDUs: `key=value`, each with a zero byte behind it (RFC 7143, 6.1).

use super::error::IscsiError;

/// Bytes of text that one login or one text exchange may send.
pub const TEXT_BYTES_MAX: usize = 8192;
/// Keys in it.
const KEYS_MAX: usize = 64;

/// The pairs in `bytes`, in their order.
///
/// # Errors
/// It is not text, too long, or a pair has no `=`.
pub fn decode(bytes: &[u8]) -> Result<Vec<(&str, &str)>, IscsiError> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(IscsiError::BadText);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| IscsiError::BadText)?;
    let pairs = text.split('\0').filter(|pair| !pair.is_empty());
    let pairs: Option<Vec<_>> = pairs.take(KEYS_MAX + 1).map(|pair| pair.split_once('=')).collect();
    pairs.filter(|pairs| pairs.len() <= KEYS_MAX).ok_or(IscsiError::BadText)
}

/// Adds a pair.
pub fn push(bytes: &mut Vec<u8>, key: &str, value: &str) {
    bytes.extend(key.as_bytes());
    bytes.push(b'=');
    bytes.extend(value.as_bytes());
    bytes.push(0);
}

/// A number as the protocol writes it: decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Bytes as the protocol writes them: `0x` and hexadecimal digits, or `0b` and base 64. At most `bytes_max`.
pub fn binary(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        if digits.len() > 2 * bytes_max || digits.is_empty() || !digits.is_ascii() {
            return None;
        }
        let padded = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
        return (0..padded.len()).step_by(2).map(|at| u8::from_str_radix(&padded[at..at + 2], 16).ok()).collect();
    }
    let digits = text.strip_prefix("0b").or(text.strip_prefix("0B"))?.trim_end_matches('=');
    if digits.len() > bytes_max * 4 / 3 + 2 {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for digit in digits.bytes() {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let value = DIGITS.iter().position(|&other| other == digit)?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes).filter(|bytes| bytes.len() <= bytes_max)
}

/// Bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
