//! An address's TLS: its certificates, or its key.

use super::address::TLS_LOOKS;
use rustls::pki_types::ServerName;
use std::{fmt, path::Path};

/// The form of an address with a pre-shared key.
const KEY_LOOKS: &str = "nbds://USER@HOST:PORT/EXPORT?tls-psk-file=FILE";

/// An address's TLS: certificates or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LegTls {
    Certificates(LegCertificates),
    Key(LegKey),
}

/// The authority that is to sign a server's certificate, and this machine's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegCertificates {
    /// Where the certificates are: an absolute path.
    pub(crate) directory: String,
    /// The name in the server's certificate, if it is not the host's.
    hostname: Option<String>,
    /// Whichever counts.
    pub(crate) name: ServerName<'static>,
}

/// A key that the server has as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegKey {
    /// The file with keys: an absolute path.
    pub(crate) file: String,
    /// Whose it is.
    pub(crate) name: String,
}

impl LegTls {
    /// The key's user.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Self::Certificates(_) => None,
            Self::Key(key) => Some(&key.name),
        }
    }

    /// Of what stands behind `?`, and before `@`.
    pub(super) fn parse(host: &str, user: Option<&str>, query: &str) -> Result<Self, String> {
        let (mut directory, mut hostname, mut key_file) = (None, None, None);
        for parameter in query.split('&').filter(|it| !it.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let place = match key {
                "tls-certificates" => &mut directory,
                "tls-hostname" => &mut hostname,
                "tls-psk-file" => &mut key_file,
                _ => {
                    return Err(format!(
                        "{key:?} is not known: tls-certificates, tls-hostname and tls-psk-file are"
                    ));
                }
            };
            if value.is_empty() || place.replace(value.to_owned()).is_some() {
                return Err(format!("{key} has to have one value"));
            }
        }
        for (name, path) in [
            ("tls-certificates", &directory),
            ("tls-psk-file", &key_file),
        ] {
            if let Some(path) = path.as_ref().filter(|path| !Path::new(path).is_absolute()) {
                return Err(format!(
                    "{name}={path} is relative, and the pool is used from other directories: give the whole path"
                ));
            }
        }
        match (directory, key_file, user) {
            (Some(directory), None, None) => Self::by_certificates(host, directory, hostname),
            (None, Some(file), Some(name)) if hostname.is_none() => {
                let name = name.to_owned();
                Ok(Self::Key(LegKey { file, name }))
            }
            (None, Some(_), None) => Err(format!(
                "it does not name the key's user in the file: {KEY_LOOKS}"
            )),
            (None, None, _) => Err(format!(
                "it does not say who signs its certificate. Name a directory with ca-cert.pem in it: {TLS_LOOKS}; or a key: {KEY_LOOKS}"
            )),
            _ => Err(format!(
                "it is either certificates ({TLS_LOOKS}) or a key ({KEY_LOOKS})"
            )),
        }
    }

    fn by_certificates(
        host: &str,
        directory: String,
        hostname: Option<String>,
    ) -> Result<Self, String> {
        let expected = hostname.as_deref().unwrap_or(host);
        let name = ServerName::try_from(expected.to_owned()).map_err(|_| {
            format!(
                "{expected:?} can be the name in no certificate: give that by tls-hostname=NAME"
            )
        })?;
        Ok(Self::Certificates(LegCertificates {
            directory,
            hostname,
            name,
        }))
    }
}

/// The part behind `?`.
impl fmt::Display for LegTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(LegKey { file, .. }) => write!(f, "tls-psk-file={file}"),
            Self::Certificates(LegCertificates {
                directory,
                hostname,
                ..
            }) => {
                write!(f, "tls-certificates={directory}")?;
                match hostname {
                    Some(name) => write!(f, "&tls-hostname={name}"),
                    None => Ok(()),
                }
            }
        }
    }
}
