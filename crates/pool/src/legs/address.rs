//! Where a leg is: `nbd://HOST[:PORT][/EXPORT]`, as the NBD project writes addresses.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
};

/// The port that IANA gave to NBD.
const PORT: u16 = 10809;
/// The longest name of an export (NBD's own limit).
const EXPORT_MAX: usize = 4096;

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegAddress {
    host: String,
    port: u16,
    export: String,
}

impl LegAddress {
    /// # Errors
    /// In words, what it is instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("nbd://") else {
            return Err(match text.starts_with("nbds://") {
                true => format!(
                    "{text}: TLS is not built into this version. Use nbd:// through a tunnel that encrypts and ends on this machine (stunnel, ssh -L)"
                ),
                false => {
                    format!(
                        "{text} is no leg: nbd://HOST:PORT/EXPORT is, the export of an NBD server"
                    )
                }
            });
        };
        let (place, export) = rest.split_once('/').unwrap_or((rest, ""));
        let is_strange = |c: char| c.is_whitespace() || c.is_control();
        if export.len() > EXPORT_MAX || text.contains(is_strange) || text.contains(['@', '?', '%'])
        {
            return Err(format!(
                "{text} is no leg: host, port and the export's name are all it may have"
            ));
        }
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').unwrap_or((rest, "?"));
                (
                    host,
                    rest.strip_prefix(':').or(rest.is_empty().then_some("")),
                )
            }
            None => match place.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, Some("")),
            },
        };
        let port = match port {
            Some("") => Some(PORT),
            Some(text) => text.parse().ok().filter(|port| *port != 0),
            None => None,
        };
        match port {
            Some(port) if !host.is_empty() => Ok(Self {
                host: host.to_owned(),
                port,
                export: export.to_owned(),
            }),
            _ => Err(format!(
                "{text} is no leg: nbd://HOST:PORT/EXPORT is, the port a number (usually {PORT})"
            )),
        }
    }

    pub(crate) fn export(&self) -> &str {
        &self.export
    }

    /// The one address that the host's name has; without `insecure` it is this machine's own.
    ///
    /// # Errors
    /// It has none, or several; what is said there could be read and changed on the way.
    pub(crate) fn resolve(&self, insecure: bool) -> io::Result<SocketAddr> {
        let mut found: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        found.sort_unstable();
        found.dedup();
        let &[address] = &found[..] else {
            let all: Vec<String> = found.iter().map(|it| it.ip().to_string()).collect();
            return Err(io::Error::other(format!(
                "{} has {} addresses ({}), and a leg is one machine: give the address itself",
                self.host,
                found.len(),
                all.join(", ")
            )));
        };
        if !insecure && !address.ip().is_loopback() {
            return Err(io::Error::other(format!(
                "{address} is another machine, and NBD without TLS can be read and changed on the way. Use a tunnel that ends on this machine; \
                 or, in a network that nobody else is in, allow it by name (--insecure)"
            )));
        }
        Ok(address)
    }
}

impl fmt::Display for LegAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, export } = self;
        match host.contains(':') {
            true => write!(f, "nbd://[{host}]:{port}/{export}"),
            false => write!(f, "nbd://{host}:{port}/{export}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legs_address_is_read_as_nbd_writes_it() {
        for (text, shown) in [
            ("nbd://b", "nbd://b:10809/"),
            ("nbd://b:7/forebay", "nbd://b:7/forebay"),
            ("nbd://[::1]/a/b", "nbd://[::1]:10809/a/b"),
        ] {
            assert_eq!(LegAddress::parse(text).unwrap().to_string(), shown);
        }
        for text in [
            "nbds://b",
            "b:7",
            "nbd://",
            "nbd://:7",
            "nbd://b:0",
            "nbd://b:x",
            "nbd://[::1",
            "nbd://b/a b",
            "nbd://b/a\n",
            "nbd://u@b/",
            "nbd://b/?tls=1",
            "nbd://[::1]7",
        ] {
            let refused = LegAddress::parse(text).unwrap_err();
            assert!(refused.contains("nbd://"), "{text:?}: {refused}");
        }
    }

    #[test]
    fn without_tls_a_leg_is_reached_on_loopback_only() {
        let leg = LegAddress::parse("nbd://192.0.2.1/x").unwrap();
        let refused = leg.resolve(false).unwrap_err().to_string();
        assert!(refused.contains("--insecure"), "{refused}");
        leg.resolve(true).unwrap();
        LegAddress::parse("nbd://127.0.0.1/x")
            .unwrap()
            .resolve(false)
            .unwrap();
    }
}
