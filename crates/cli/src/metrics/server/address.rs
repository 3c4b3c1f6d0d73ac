//! The address to be scraped at, as it is given.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

/// The address that serves figures. A port alone is one that this machine alone reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(SocketAddr);

impl MetricsAddress {
    /// Address and port.
    pub fn socket(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let on_loopback = |port: &str| Some(SocketAddr::new(LOOPBACK, port.parse().ok()?));
        let local = text.strip_prefix("localhost:").unwrap_or(text);
        let address = on_loopback(local).or_else(|| text.parse().ok());
        address.map(Self).ok_or_else(|| {
            "write a port, which this machine alone reaches, or an address of this machine's and a port: 9469, 192.0.2.7:9469, [::1]:9469. 0.0.0.0:9469 is for everybody who \
             reaches this machine; port 0 is any free one"
                .to_owned()
        })
    }
}

/// The reason that it cannot be had, and the remedy.
pub(super) fn refused(address: SocketAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "Another program has the port: give --metrics another one, or end that program (ss -ltnp says which it is)"
        }
        io::ErrorKind::AddrNotAvailable => {
            "This machine has no such address: ip address lists those that it has"
        }
        io::ErrorKind::PermissionDenied => {
            "Ports below 1024 are for root: give --metrics another one"
        }
        _ => "Give --metrics another address",
    };
    format!("figures cannot be served at {address}: {error}. {remedy}. Nothing was started")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_one_of_this_machine() {
        let parsed = |text: &str| text.parse::<MetricsAddress>().map(|it| it.0.to_string());
        for text in ["9469", "localhost:9469", "127.0.0.1:9469"] {
            assert_eq!(parsed(text).as_deref(), Ok("127.0.0.1:9469"), "{text}");
        }
        assert_eq!(parsed("[::1]:1").as_deref(), Ok("[::1]:1"));
        for text in [
            "",
            ":9469",
            "65536",
            "example.org:9469",
            "127.0.0.1",
            "9469 ",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
