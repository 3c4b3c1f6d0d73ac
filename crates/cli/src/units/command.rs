//! The line by which a unit starts its program (`ExecStart=`), and the check that it can be wrapped
//! (systemd.service(5), "Command lines").
//!
//! A line stays as it is written: `forebay run … --` comes before it, behind its prefixes. What
//! cannot be wrapped so is refused, with why.

use super::{name::UnitName, search::FoundUnit, settings::UnitSettings};
use crate::failure::Failure;

/// A unit's one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecLine {
    /// `-` (its failure is none) and `:` (no variables), as far as they are there.
    pub prefixes: String,
    /// The program that starts forebay, with a space behind; empty if systemd itself starts it.
    pub starter: String,
    /// The program's path.
    pub program: String,
    /// All of it without the prefixes, as it is written.
    pub words: String,
}

impl ExecLine {
    /// That of a unit.
    ///
    /// # Errors
    /// [`Failure::Failed`]: there is none, or several, or one that cannot be wrapped.
    pub fn of(unit: &FoundUnit, settings: &UnitSettings) -> Result<Self, Failure> {
        let refuse = |why: String| Failure::Failed(format!("{}: {why}", unit.name.stem()));
        if !settings.is_service() {
            return Err(refuse("its files have no section [Service]".to_owned()));
        }
        if settings.value("Type") == Some("oneshot") {
            return Err(refuse(of_oneshot(&unit.name)));
        }
        let lines = settings.list("ExecStart");
        let [line] = lines[..] else {
            return Err(refuse(match lines.len() {
                0 => "it has no ExecStart, so it starts no program that could be run under forebay"
                    .to_owned(),
                n => format!(
                    "it has {n} ExecStart lines, and forebay run wraps one program. Make a unit for each"
                ),
            }));
        };
        Self::parse(line, &unit.name).map_err(refuse)
    }

    fn parse(line: &str, name: &UnitName) -> Result<Self, String> {
        let words = line
            .trim_start_matches(['-', '@', ':', '+', '!', '|'])
            .trim_start();
        let prefixes = &line[..line.len() - words.len()].trim_end();
        let why = |prefix: char| match prefix {
            '-' | ':' => None,
            '@' => Some("gives the program another name than its path, which forebay run cannot"),
            '+' => Some(
                "starts the program as root, whatever User= says; its logs are another user's, or root's, and would stay plain",
            ),
            '!' => Some(
                "leaves it to the program to change its user, so that its logs would be another user's than forebay's, and stay plain",
            ),
            _ => Some("is not known to this version of forebay"),
        };
        for prefix in prefixes.chars() {
            if let Some(why) = why(prefix) {
                return Err(format!(
                    "its ExecStart begins with the prefix {prefix}, which {why}. Take the prefix away in a drop-in if the program does without (systemctl edit), or start it by hand under forebay run"
                ));
            }
        }
        let split = split(words).ok_or("its ExecStart has a quote without an end")?;
        if split.iter().any(|word| word.raw == ";") {
            return Err("its ExecStart has several commands, and forebay run wraps one".to_owned());
        }
        let program = split.first().map_or("", |word| &*word.plain);
        let program = name
            .expand(program)
            .filter(|it| !it.is_empty() && !it.contains('$'));
        Ok(Self {
            prefixes: (*prefixes).to_owned(),
            starter: String::new(),
            program: program
                .ok_or_else(|| format!("the program that {line:?} starts cannot be told"))?,
            words: words.to_owned(),
        })
    }

    /// The words behind the program, without quotes.
    pub fn arguments(&self) -> Vec<String> {
        let words = split(&self.words).unwrap_or_default().into_iter().skip(1);
        words.map(|word| word.plain).collect()
    }

    /// The file name of the program.
    pub fn program_name(&self) -> &str {
        self.program.rsplit('/').next().unwrap_or_default()
    }
}

fn of_oneshot(name: &UnitName) -> String {
    let instead = match name.prefix() {
        "postgresql" => {
            ", and stands for all clusters. Name one: forebay enable postgresql@15-main (pg_lsclusters lists them)"
        }
        _ => ", and no server. Name the unit of the server",
    };
    format!("it is a unit of Type=oneshot{instead}")
}

/// True if a line, or a shell's argument in it, calls `forebay run`.
pub fn runs_forebay(line: &str) -> bool {
    let is_between = |c: char| c.is_whitespace() || "\"'=;&|()".contains(c);
    let mut words = line.split(is_between);
    words.any(|word| word.rsplit(['/', '-', ':']).next() == Some("forebay"))
        && words.any(|word| word == "run")
}

/// The values of an option in a line, before the program that is run.
pub fn options_of(line: &str, option: &str) -> Vec<String> {
    let words = split(line).unwrap_or_default().into_iter();
    let words: Vec<String> = (words.map(|word| word.plain))
        .take_while(|word| word != "--")
        .collect();
    let value = |(at, word): (usize, &String)| match word.strip_prefix(option)? {
        "" => words.get(at + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    };
    words.iter().enumerate().filter_map(value).collect()
}

/// A word of a line.
struct LineWord {
    raw: String,
    plain: String,
}

/// The words of a line; none if a quote has no end.
fn split(line: &str) -> Option<Vec<LineWord>> {
    let mut words = Vec::new();
    let (mut raw, mut plain) = (String::new(), String::new());
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => {
                if !raw.is_empty() {
                    let (raw, plain) = (std::mem::take(&mut raw), std::mem::take(&mut plain));
                    words.push(LineWord { raw, plain });
                }
                continue;
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (_, '\\') => {
                let next = chars.next()?;
                raw.push(c);
                raw.push(next);
                plain.push(next);
                continue;
            }
            (_, c) => plain.push(c),
        }
        raw.push(c);
    }
    if !raw.is_empty() {
        words.push(LineWord { raw, plain });
    }
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ExecLine, String> {
        ExecLine::parse(line, &UnitName::parse("db@15-main").unwrap())
    }

    #[test]
    fn a_line_keeps_its_words_and_two_of_its_prefixes() {
        let line = parse("-:/usr/bin/db --name \"%i x\" $OPTS").unwrap();
        assert_eq!((&*line.prefixes, &*line.program), ("-:", "/usr/bin/db"));
        assert_eq!(line.words, "/usr/bin/db --name \"%i x\" $OPTS");
        assert_eq!(line.arguments(), ["--name", "%i x", "$OPTS"]);
        assert_eq!(parse("/opt/%i/db").unwrap().program, "/opt/15-main/db");
    }

    #[test]
    fn prefixes_that_change_the_user_or_the_name_are_refused() {
        for (line, word) in [
            ("@/usr/bin/db other", "another name"),
            ("+/usr/bin/db", "as root"),
            ("!/usr/bin/db", "change its user"),
            ("-!!/usr/bin/db", "change its user"),
            ("|/usr/bin/db", "not known"),
        ] {
            let refused = parse(line).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn a_line_that_runs_forebay_is_seen() {
        for line in [
            "/usr/bin/forebay run --pool /p -- /bin/db",
            "-/usr/local/bin/forebay run /bin/db",
            "/bin/sh -c \"A=1 exec forebay run db\"",
            "/usr/bin/env A=b forebay --json run db",
        ] {
            assert!(runs_forebay(line), "{line}");
        }
        for line in ["/bin/db run", "/usr/bin/forebay status", "/opt/forebay/db"] {
            assert!(!runs_forebay(line), "{line}");
        }
        let line = "/usr/bin/forebay run --pool=/a --pool \"/b\" -- /bin/db --pool /c";
        assert_eq!(options_of(line, "--pool"), ["/a", "/b"]);
    }

    #[test]
    fn lines_that_are_no_one_command_are_refused() {
        for line in ["/bin/a ; /bin/b", "/bin/a 'b", "$DB --x", "%H/db", ""] {
            assert!(parse(line).is_err(), "{line}");
        }
        parse("/bin/sh -c \"a; exec b\" \";\"").unwrap();
    }
}
