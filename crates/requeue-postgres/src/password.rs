//! The password of an address that has none: `PGPASSWORD`, then the password file.
//!
//! The file is read for each connection, so that a store finds a new password after the
//! old one was replaced.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Returns the value of an environment variable.
type Env = fn(&str) -> Option<OsString>;

/// What identifies an entry of the password file.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: String,
    pub(crate) user: String,
}

/// Where passwords come from.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    /// The parameter `passfile`.
    file: Option<PathBuf>,
    env: Env,
}

impl Passwords {
    pub(crate) fn new(file: Option<String>) -> Self {
        Self { file: file.map(PathBuf::from), env: |name| std::env::var_os(name) }
    }

    /// Returns the password of a login, if one is known.
    pub(crate) fn find(&self, login: &Login) -> Option<Vec<u8>> {
        let password = (self.env)("PGPASSWORD").filter(|password| !password.is_empty());
        if let Some(password) = password {
            return Some(password.into_encoded_bytes());
        }
        let file = self.file().filter(|file| is_private(file))?;
        let text = std::fs::read_to_string(file).ok()?;
        text.lines().find_map(|line| password_for(line, login)).map(String::into_bytes)
    }

    /// Returns advice if the password file is ignored because others can read it.
    pub(crate) fn advice(&self) -> Option<String> {
        let file = self.file().filter(|file| file.is_file() && !is_private(file))?;
        let file = file.display();
        Some(format!(
            "{file} is ignored, because other users can read it; chmod 600 {file}"
        ))
    }

    fn file(&self) -> Option<PathBuf> {
        let set = |name| (self.env)(name).filter(|value| !value.is_empty());
        let named = self.file.clone().or_else(|| set("PGPASSFILE").map(PathBuf::from));
        named.or_else(|| {
            let (folder, file) = if cfg!(windows) {
                ("APPDATA", "postgresql/pgpass.conf")
            } else {
                ("HOME", ".pgpass")
            };
            set(folder).map(|folder| Path::new(&folder).join(file))
        })
    }
}

/// Returns whether only the owner of a file can read it, the rule of libpq.
#[cfg(unix)]
fn is_private(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const GROUP_AND_OTHERS: u32 = 0o077;
    let metadata = std::fs::metadata(file);
    metadata.is_ok_and(|metadata| {
        metadata.is_file() && metadata.mode() & GROUP_AND_OTHERS == 0
    })
}

#[cfg(not(unix))]
fn is_private(file: &Path) -> bool {
    file.is_file()
}

/// Returns the password of a line `host:port:database:user:password` that matches.
fn password_for(line: &str, login: &Login) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let fields = fields(line);
    let [host, port, database, user, password] = &fields[..] else { return None };
    let is = |field: &str, value: &str| field == "*" || field == value;
    let is_host =
        is(host, &login.host) || login.host.starts_with('/') && host == "localhost";
    let matches = is_host
        && is(port, &login.port.to_string())
        && is(database, &login.database)
        && is(user, &login.user);
    matches.then(|| password.clone())
}

/// Splits a line at colons. A backslash escapes the next character. The password, which is
/// the fifth field, may contain plain colons.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let last = fields.len() - 1;
        match c {
            '\\' => fields[last].extend(chars.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        Login { host: "db".into(), port: 5432, database: "app".into(), user: "me".into() }
    }

    #[test]
    fn first_matching_line_has_the_password() {
        let password = |line| password_for(line, &login());
        assert_eq!(password("db:5432:app:me:secret").as_deref(), Some("secret"));
        assert_eq!(password("*:*:*:me:s:e\\:c\\\\ret").as_deref(), Some("s:e:c\\ret"));
        for other in ["db:5433:app:me:x", "d*:*:*:*:x", "# db:5432:app:me:x", "db:5432"] {
            assert_eq!(password(other), None, "{other}");
        }
    }

    #[test]
    fn socket_matches_localhost() {
        let socket = Login { host: "/run/postgresql".into(), ..login() };
        assert_eq!(password_for("localhost:*:*:*:x", &socket).as_deref(), Some("x"));
    }

    #[cfg(unix)]
    #[test]
    fn file_that_others_can_read_is_ignored_with_advice() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("pgpass-{}", std::process::id()));
        std::fs::write(&path, "*:*:*:*:secret").unwrap();
        let passwords = Passwords { file: Some(path.clone()), env: |_| None };
        let mode = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        mode(0o640);
        assert_eq!(passwords.find(&login()), None);
        assert!(passwords.advice().unwrap().contains("chmod 600"));
        mode(0o600);
        assert_eq!(passwords.find(&login()).as_deref(), Some(&b"secret"[..]));
        assert_eq!(passwords.advice(), None);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn variables_come_before_the_file() {
        let env: Env = |name| match name {
            "PGPASSWORD" => Some("b".into()),
            "PGPASSFILE" => Some("/nowhere".into()),
            _ => None,
        };
        let passwords = Passwords { file: None, env };
        assert_eq!(passwords.find(&login()).as_deref(), Some(&b"b"[..]));
        assert_eq!(passwords.file(), Some(PathBuf::from("/nowhere")));
    }
}
