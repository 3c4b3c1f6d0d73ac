//! A client of etcd's keys: etcd's messages (`rpc.proto`, `kv.proto`), as far as they are needed.

use super::grpc::Wire;
use std::io;

/// A connection to an etcd on this machine.
pub struct Connection(Wire);

/// A key, and its new value unless it is deleted.
pub type KeyChange = (Vec<u8>, Option<Vec<u8>>);

impl Connection {
    /// Connects to the etcd whose clients' port this is.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(port: u16) -> io::Result<Self> {
        Wire::new(port).map(Self)
    }

    /// Puts a value, and waits until etcd has it.
    ///
    /// # Errors
    /// I/O errors: then it is not known whether it was put. `InvalidData` if etcd says no.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.0.call("Put", &put(key, value)).map(drop)
    }

    /// Makes changes of different keys in one transaction, and waits until etcd has them.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn transact(&mut self, changes: &[KeyChange]) -> io::Result<()> {
        let mut transaction = Vec::new();
        for (key, value) in changes {
            let mut operation = Vec::new();
            match value {
                Some(value) => field(&mut operation, 2, &put(key, value)),
                None => {
                    let mut range = Vec::new();
                    field(&mut range, 1, key);
                    field(&mut operation, 3, &range);
                }
            }
            field(&mut transaction, 2, &operation);
        }
        self.0.call("Txn", &transaction).map(drop)
    }

    /// A key's value.
    ///
    /// # Errors
    /// I/O errors.
    pub fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut range = Vec::new();
        field(&mut range, 1, key);
        let answer = self.0.call("Range", &range)?;
        let pair = fields(&answer).find_map(|field| field.bytes(2));
        let value = |pair: &[u8]| {
            fields(pair)
                .find_map(|field| field.bytes(5))
                .map(<[u8]>::to_vec)
        };
        // An empty value is none in the message.
        Ok(pair.map(|pair| value(pair).unwrap_or_default()))
    }

    /// How many keys there are.
    ///
    /// # Errors
    /// I/O errors.
    pub fn count(&mut self) -> io::Result<u64> {
        const COUNT_ONLY: u8 = 9 << 3;
        let mut range = Vec::new();
        // From the smallest key on.
        field(&mut range, 1, &[0]);
        field(&mut range, 2, &[0]);
        range.extend([COUNT_ONLY, 1]);
        let answer = self.0.call("Range", &range)?;
        Ok(fields(&answer)
            .find_map(|field| field.number(4))
            .unwrap_or(0))
    }
}

fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut put = Vec::with_capacity(key.len() + value.len() + 16);
    field(&mut put, 1, key);
    field(&mut put, 2, value);
    put
}

/// Adds a field of bytes.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(bytes);
}

/// A field of a message: its number, and one of the two kinds that are read.
struct Field<'a> {
    number: u64,
    value: u64,
    bytes: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    fn bytes(&self, number: u64) -> Option<&'a [u8]> {
        self.bytes.filter(|_| self.number == number)
    }

    fn number(&self, number: u64) -> Option<u64> {
        (self.bytes.is_none() && self.number == number).then_some(self.value)
    }
}

/// The fields of a message, up to one that cannot be read.
fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let key = varint(&mut rest)?;
        let value = varint(&mut rest)?;
        let bytes = match key & 7 {
            0 => None,
            2 => {
                let (bytes, later) = rest.split_at_checked(usize::try_from(value).ok()?)?;
                rest = later;
                Some(bytes)
            }
            _ => return None,
        };
        Some(Field {
            number: key >> 3,
            value,
            bytes,
        })
    })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, later) = rest.split_first()?;
        *rest = later;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_a_message_is_read_from_it() {
        let mut message = Vec::new();
        field(&mut message, 2, &[7; 300]);
        assert_eq!(message[..4], [0x12, 0xac, 0x02, 7]);
        message.extend([4 << 3, 0xac, 0x02]);
        let found: Vec<_> = fields(&message).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].bytes(2).map(<[u8]>::len), Some(300));
        assert_eq!(found[1].number(4), Some(300));
        assert_eq!(fields(&message[..200]).count(), 0, "cut off");
    }
}
