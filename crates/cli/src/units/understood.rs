//! A unit as far as it has to be understood: the one command of it, its settings, whose it is, and
//! what a drop-in says besides the answers to its sandbox.

use super::{
    command::ExecLine,
    drop_in::UnitDropIn,
    name::UnitName,
    postgres::{self, DebianCluster},
    search::{FoundUnit, UnitRoot},
    settings::UnitSettings,
};
use crate::{failure::Failure, users::SystemUser};

/// A unit, as far as it is understood.
pub struct UnderstoodUnit {
    pub exec: ExecLine,
    pub settings: UnitSettings,
    pub cluster: Option<DebianCluster>,
}

impl UnderstoodUnit {
    /// Understands it.
    ///
    /// # Errors
    /// It cannot be wrapped: in a sentence.
    pub fn of(unit: &FoundUnit, root: &UnitRoot) -> Result<Self, Failure> {
        UnitDropIn::check_others(unit)?;
        let settings = unit.settings_without(UnitDropIn::is_one);
        let exec = ExecLine::of(unit, &settings)?;
        let cluster = match exec.program_name() == postgres::CALLS {
            true => Some(DebianCluster::of(&unit.name, root)?),
            false => None,
        };
        let exec = cluster
            .as_ref()
            .map_or(exec, |cluster| cluster.exec.clone());
        Ok(Self {
            exec,
            settings,
            cluster,
        })
    }

    /// The user whom the server runs as.
    pub fn owner(&self, name: &UnitName, root: &UnitRoot) -> Result<SystemUser, Failure> {
        let passwd = root.at("/etc/passwd");
        if let Some(cluster) = &self.cluster {
            let uid = cluster.owner;
            return match root.is_this() {
                true => Ok(SystemUser::numbered(uid)),
                false => Ok(SystemUser::listed(
                    &passwd,
                    |it| it.uid == uid,
                    &uid.to_string(),
                )?),
            };
        }
        let user = self.settings.value("User").unwrap_or("root");
        let user = name.expand(user).ok_or_else(|| {
            Failure::Failed(format!(
                "{}: which user User={user} is cannot be told",
                name.stem()
            ))
        })?;
        let is_it = |it: &SystemUser| it.name == user || it.uid.to_string() == user;
        Ok(match root.is_this() {
            true => SystemUser::named(&user)?,
            false => SystemUser::listed(&passwd, is_it, &user)?,
        })
    }

    /// Lines of `[Service]` that are no answer to a sandbox.
    pub fn lines(&self, owner: &SystemUser) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(cluster) = &self.cluster {
            lines.push(format!("User={}", owner.name));
            lines.extend(cluster.lines.iter().cloned());
        } else if self.settings.value("Type") == Some("forking") {
            lines.push("# Forebay stays while the server is in the background.".to_owned());
            lines.push("Type=exec".to_owned());
        }
        if ["TimeoutStopSec", "TimeoutSec"]
            .iter()
            .all(|key| self.settings.value(key).is_none())
        {
            lines.push("# The files are synced before the end.".to_owned());
            lines.push("TimeoutStopSec=300".to_owned());
        }
        lines
    }

    /// What the user should know of it.
    pub fn notes(&self) -> Vec<String> {
        let is_forking = self.settings.value("Type") == Some("forking") && self.cluster.is_none();
        let note = "The unit counts as started as soon as forebay runs, not when the server is ready (it is Type=exec instead of forking): units that are ordered after it may come too early";
        is_forking.then(|| note.to_owned()).into_iter().collect()
    }
}
