//! A leg's address: `nbd://HOST[:PORT][/EXPORT]`, as the NBD project writes addresses; or
//! `nbds://HOST[:PORT][/EXPORT]?tls-certificates=DIR[&tls-hostname=NAME]` or
//! `nbds://USER@HOST[:PORT][/EXPORT]?tls-psk-file=FILE`, with TLS; or the path of a file or a block
//! device of this machine.

use super::tls_address::LegTls;
use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
};

/// The port that IANA gave to NBD.
const PORT: u16 = 10809;
/// The longest name of an export (NBD's own limit).
const EXPORT_MAX: usize = 4096;
/// The form of an address with TLS.
pub(super) const TLS_LOOKS: &str = "nbds://HOST:PORT/EXPORT?tls-certificates=DIR";

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LegAddress {
    /// An export of an NBD server.
    Export(ExportAddress),
    /// A disk of this machine, or a file on one: an absolute path.
    Disk(PathBuf),
}

/// The address of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportAddress {
    host: String,
    port: u16,
    export: String,
    tls: Option<LegTls>,
}

impl LegAddress {
    /// # Errors
    /// In words, what it is instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return ExportAddress::parse(text).map(Self::Export);
        }
        match text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            false => Ok(Self::Disk(PathBuf::from(text))),
            true => Err(format!(
                "{text:?} is no leg: its path may not have spaces in it"
            )),
        }
    }

    /// True if it is lost with this machine.
    pub(crate) fn is_disk(&self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// True if both are one place, however it is reached.
    pub(crate) fn is_place_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Export(one), Self::Export(other)) => one.is_place_of(other),
            (Self::Disk(one), Self::Disk(other)) => one == other,
            _ => false,
        }
    }

    /// True if `text` names this one: the part behind `?` may be left out, and the last slash.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        match self {
            Self::Export(export) => export.is_named(text),
            Self::Disk(path) => path == Path::new(text),
        }
    }
}

impl fmt::Display for LegAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Export(export) => export.fmt(f),
            Self::Disk(path) => path.display().fmt(f),
        }
    }
}

impl ExportAddress {
    fn parse(text: &str) -> Result<Self, String> {
        let (is_tls, rest) = match (text.strip_prefix("nbd://"), text.strip_prefix("nbds://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            (None, None) => {
                return Err(format!(
                    "{text} is no leg: nbd://HOST:PORT/EXPORT is, the export of an NBD server, and with TLS {TLS_LOOKS}; or the whole path of a file on a disk"
                ));
            }
        };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (place, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) = match place.split_once('@') {
            Some((user, place)) if is_tls && !user.is_empty() => (Some(user), place),
            _ => (None, place),
        };
        let is_strange = |c: char| c.is_whitespace() || c.is_control();
        if export.len() > EXPORT_MAX
            || text.contains(is_strange)
            || text.contains(['%', '#'])
            || export.contains('@')
            || place.contains('@')
            || user.is_some_and(|user| user.contains(':'))
        {
            return Err(format!(
                "{text} is no leg: nbd://HOST:PORT/EXPORT is all that it may have, or {TLS_LOOKS}, without spaces, @, % and #"
            ));
        }
        let Some((host, port)) = host_and_port(place) else {
            return Err(format!(
                "{text} is no leg: nbd://HOST:PORT/EXPORT is, the port a number (usually {PORT})"
            ));
        };
        let tls = match (is_tls, query) {
            (false, None) => None,
            (false, Some(_)) => {
                return Err(format!(
                    "{text} is no leg: nothing may stand behind ? of an nbd:// address. With TLS it is {TLS_LOOKS}"
                ));
            }
            (true, query) => Some(
                LegTls::parse(host, user, query.unwrap_or_default())
                    .map_err(|why| format!("{text} is no leg: {why}"))?,
            ),
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            export: export.to_owned(),
            tls,
        })
    }

    pub(crate) fn export(&self) -> &str {
        &self.export
    }

    pub(crate) fn tls(&self) -> Option<&LegTls> {
        self.tls.as_ref()
    }

    fn is_place_of(&self, other: &Self) -> bool {
        let place = |it: &Self| (it.host.clone(), it.port, it.export.clone());
        place(self) == place(other)
    }

    fn is_named(&self, url: &str) -> bool {
        let shown = self.to_string();
        let bare = shown.split_once('?').map_or(&*shown, |(bare, _)| bare);
        [&shown, bare, bare.trim_end_matches('/')].contains(&url)
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
        if self.tls.is_none() && !insecure && !address.ip().is_loopback() {
            return Err(io::Error::other(format!(
                "{address} is another machine, and NBD without TLS can be read and changed on the way. Use TLS ({TLS_LOOKS}), \
                 or a tunnel that ends on this machine; or, in a network that nobody else is in, allow it by name (--insecure)"
            )));
        }
        Ok(address)
    }
}

impl fmt::Display for ExportAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            export,
            tls,
        } = self;
        f.write_str(if tls.is_some() { "nbds://" } else { "nbd://" })?;
        if let Some(user) = tls.as_ref().and_then(LegTls::user) {
            write!(f, "{user}@")?;
        }
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}/{export}")?,
            false => write!(f, "{host}:{port}/{export}")?,
        }
        match tls {
            None => Ok(()),
            Some(tls) => write!(f, "?{tls}"),
        }
    }
}

/// Parses the part before the first slash.
fn host_and_port(place: &str) -> Option<(&str, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest {
                "" => (host, ""),
                rest => (host, rest.strip_prefix(':')?),
            }
        }
        None => place.rsplit_once(':').unwrap_or((place, "")),
    };
    let port = match port {
        "" => Some(PORT),
        text => text.parse().ok().filter(|port| *port != 0),
    };
    port.filter(|_| !host.is_empty()).map(|port| (host, port))
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
            (
                "nbds://b/x?tls-certificates=/c",
                "nbds://b:10809/x?tls-certificates=/c",
            ),
            (
                "nbds://[::1]?tls-hostname=b.example&tls-certificates=/c/d",
                "nbds://[::1]:10809/?tls-certificates=/c/d&tls-hostname=b.example",
            ),
            (
                "nbds://me@b/x?tls-psk-file=/keys",
                "nbds://me@b:10809/x?tls-psk-file=/keys",
            ),
            ("/dev/vdb", "/dev/vdb"),
        ] {
            let read = LegAddress::parse(text).unwrap();
            assert_eq!(read.to_string(), shown);
            assert_eq!(LegAddress::parse(shown).unwrap(), read);
        }
        for text in [
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
            "disk/leg",
        ] {
            let refused = LegAddress::parse(text).unwrap_err();
            assert!(refused.contains("nbd://"), "{text:?}: {refused}");
        }
        let refused = LegAddress::parse("/mnt/my leg").unwrap_err();
        assert!(refused.contains("spaces"), "{refused}");
    }

    #[test]
    fn an_address_with_tls_says_whom_to_believe() {
        for (text, why) in [
            ("nbds://b", "ca-cert.pem"),
            ("nbds://b/x?tls-hostname=b", "ca-cert.pem"),
            ("nbds://b/x?tls-certificates=certs", "the whole path"),
            ("nbds://b/x?tls-certificates=", "one value"),
            (
                "nbds://b/x?tls-certificates=/a&tls-certificates=/b",
                "one value",
            ),
            ("nbds://b/x?tls-psk-file=/keys", "the key's user"),
            ("nbds://me@b/x?tls-psk-file=keys", "the whole path"),
            ("nbds://me@b/x", "ca-cert.pem"),
            ("nbds://me@b/x?tls-certificates=/a", "either"),
            ("nbds://me@b/x?tls-psk-file=/a&tls-hostname=b", "either"),
            ("nbds://me:secret@b/x?tls-psk-file=/a", "without spaces"),
            ("nbds://b/x?tls-certificates=/a&verify=no", "\"verify\""),
            ("nbds://b/x?tls-certificates=/a%20b", "%"),
            ("nbds://a,b/x?tls-certificates=/a", "tls-hostname"),
            ("nbd://b/x?tls-certificates=/a", "nbds://"),
        ] {
            let refused = LegAddress::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
    }

    #[test]
    fn a_leg_is_one_place_however_it_is_reached() {
        let read = |text: &str| LegAddress::parse(text).unwrap();
        let leg = read("nbds://b/x?tls-certificates=/a");
        assert!(leg.is_place_of(&read("nbds://b:10809/x?tls-certificates=/c")));
        assert!(leg.is_place_of(&read("nbd://b/x")));
        assert!(!leg.is_place_of(&read("nbds://b/y?tls-certificates=/a")));
        for url in ["nbds://b:10809/x?tls-certificates=/a", "nbds://b:10809/x"] {
            assert!(leg.is_named(url), "{url}");
        }
        assert!(!leg.is_named("nbd://b:10809/x"));
        assert!(read("nbd://b").is_named("nbd://b:10809"));
        assert!(read("/mnt/leg").is_named("/mnt/leg/"));
        assert!(!read("/mnt/leg").is_place_of(&read("nbd://b")));
    }

    #[test]
    fn without_tls_a_leg_is_reached_on_loopback_only() {
        let leg = ExportAddress::parse("nbd://192.0.2.1/x").unwrap();
        let refused = leg.resolve(false).unwrap_err().to_string();
        assert!(refused.contains("--insecure"), "{refused}");
        assert!(refused.contains("nbds://"), "{refused}");
        leg.resolve(true).unwrap();
        ExportAddress::parse("nbds://192.0.2.1/x?tls-certificates=/c")
            .unwrap()
            .resolve(false)
            .unwrap();
        ExportAddress::parse("nbd://127.0.0.1/x")
            .unwrap()
            .resolve(false)
            .unwrap();
    }
}
