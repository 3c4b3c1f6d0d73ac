"""OpenLDAP: an entry for each number."""

import sys

import ldap3
from protocol import PAYLOAD, retried, serve

SUFFIX = "dc=lab"


class Store:
    def __init__(self, port: str):
        server = ldap3.Server("127.0.0.1", int(port), get_info=ldap3.NONE)
        self.connection = retried(lambda: ldap3.Connection(server, f"cn=root,{SUFFIX}", "lab", auto_bind=True, raise_exceptions=True))
        try:
            self.connection.add(SUFFIX, ["dcObject", "organization"], {"dc": "lab", "o": "lab"})
        except ldap3.core.exceptions.LDAPEntryAlreadyExistsResult:
            pass

    def write(self, number: int) -> None:
        self.connection.add(f"cn={number},{SUFFIX}", ["organizationalRole"], {"description": PAYLOAD})

    def numbers(self) -> list[int]:
        self.connection.search(SUFFIX, "(objectClass=organizationalRole)", ldap3.LEVEL, attributes=["cn"])
        return [int(entry.cn.value) for entry in self.connection.entries]


serve(Store(sys.argv[1]))
