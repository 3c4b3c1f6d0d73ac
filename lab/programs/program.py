"""What a program is here, and the programs that are tried: how each is started on a port of its own, in a directory of its own."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import socket
from collections.abc import Callable

from suites.place import target

SESSIONS = pathlib.Path(__file__).parent / "sessions"
JARS = pathlib.Path("/usr/share/java")
HOST = "127.0.0.1"


def peers() -> pathlib.Path:
    """Where `scripts/setup.sh test-programs` puts what Debian would install with a service."""
    return target().resolve() / "peers"


def client(name: str, *argv: str) -> list[str]:
    """A session in Python, with the clients' packages."""
    return [str(peers() / "venv/bin/python"), str(SESSIONS / f"{name}_session.py"), *argv]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        return bound.getsockname()[1]


@dataclasses.dataclass
class Home:
    """Where one instance lives: `data` is on the disk that is cut, `beside` is not."""

    data: pathlib.Path
    beside: pathlib.Path
    # Logs end, and others begin, every few hundred writes.
    has_small_logs: bool = dataclasses.field(default=False, kw_only=True)
    ports: list[int] = dataclasses.field(default_factory=lambda: [free_port() for _ in range(3)])

    def small(self, *words: str) -> list[str]:
        """Words that make logs small, if they are to be."""
        return list(words) if self.has_small_logs else []

    @property
    def port(self) -> str:
        return str(self.ports[0])

    def write(self, name: str, text: str) -> str:
        """A file beside the data: its path."""
        path = self.beside / name
        path.write_text(text)
        return str(path)


@dataclasses.dataclass(frozen=True)
class Command:
    argv: list[str]
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    # Has to run meanwhile, outside of Forebay.
    helper: list[str] | None = None


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, and the session by which it is written to and read."""

    name: str
    # In the paths of what is absorbed of it. None: nothing, for the reason in docs/databases/others.md.
    absorbed: str | None
    # Files or commands that it needs.
    needs: tuple[str, ...]
    session: Callable[[Home], list[str]]
    # None: the program lives inside others, and is its session.
    server: Callable[[Home], Command] | None = None
    # Of `forebay run`, besides its pool.
    options: tuple[str, ...] = ()
    # False: what it makes of itself at first it does not sync, and a cut shortly after may leave nothing sound.
    is_made_durably: bool = True
    # False: it is no program that people run.
    is_measured: bool = True
    # False: it acknowledges before anything is durable, and loses that at a power cut, whatever stands before it.
    is_durable: bool = True

    def lacking(self) -> list[str]:
        return [name for name in self.needs if not (os.path.exists(name) if "/" in name else shutil.which(name))]

    def command(self, home: Home) -> Command:
        """What stands behind `forebay run --`."""
        return self.server(home) if self.server else Command(self.session(home))


def java(jars: list[str], *argv: str) -> list[str]:
    classes = os.pathsep.join([str(JARS / f"{jar}.jar") for jar in jars] + [str(target().resolve() / "programs/java")])
    return ["java", "-Xmx128m", "-cp", classes, *argv]


def jars(*names: str) -> tuple[str, ...]:
    return ("java", *(str(JARS / f"{name}.jar") for name in names))


OF_ZOOKEEPER = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-all", "metrics-core", "commons-cli", "commons-io", "snappy-java"]


def zookeeper(home: Home) -> Command:
    settings = f"tickTime=2000\ndataDir={home.data}\nclientPort={home.port}\nclientPortAddress={HOST}\nadmin.enableServer=false\n"
    path = home.write("zoo.cfg", settings + "".join(home.small("snapCount=300\n", "preAllocSize=64\n")))
    return Command(java(OF_ZOOKEEPER, "org.apache.zookeeper.server.quorum.QuorumPeerMain", path))


def rabbitmq(home: Home) -> Command:
    """A broker without plugins. Its epmd would otherwise be a daemon that stays."""
    node, epmd = map(str, home.ports[1:])
    arguments = f"-start_epmd false +S 2:2 -kernel inet_dist_use_interface {{127,0,0,1}}"
    names = {"MNESIA_BASE": "mnesia", "SCHEMA_DIR": "schema", "GENERATED_CONFIG_DIR": "config", "FEATURE_FLAGS_FILE": "flags"}
    env = {f"RABBITMQ_{name}": str(home.data / path) for name, path in names.items()}
    env |= {
        "HOME": str(home.beside),
        "ERL_EPMD_PORT": epmd,
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": "lab@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": home.port,
        "RABBITMQ_DIST_PORT": node,
        "RABBITMQ_LOG_BASE": str(home.beside / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": home.write("plugins", "[].\n"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": home.write("rabbitmq.conf", "".join(home.small("raft.wal_max_size_bytes = 65536\n"))),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
    }
    cookie = home.beside / ".erlang.cookie"
    if not cookie.exists():
        cookie.write_text("of-a-laboratory")
        cookie.chmod(0o400)
    return Command([str(rabbitmq_program())], env, ["epmd", "-port", epmd, "-address", HOST])


def rabbitmq_program() -> pathlib.Path:
    found = sorted((peers() / "rabbitmq/usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server"))
    return found[-1] if found else peers() / "rabbitmq-server"


BOOKKEEPER_SETTINGS = """
metadataServiceUri={metadata}
journalDirectories={data}/journal
ledgerDirectories={data}/ledgers
bookiePort={port}
advertisedAddress={host}
allowLoopback=true
listeningInterface=lo
httpServerEnabled=false
minUsableSizeForIndexFileCreation=1048576
minUsableSizeForEntryLogCreation=1048576
logSizeLimit=33554432
journalMaxSizeMB=64
journalPreAllocSizeMB=4
readBufferSizeBytes=4096
dbStorage_writeCacheMaxSizeMb=8
dbStorage_readAheadCacheMaxSizeMb=8
"""


def bookkeeper_metadata(home: Home) -> str:
    return f"zk+hierarchical://{HOST}:{home.ports[1]}/ledgers"


def bookkeeper_java(*argv: str) -> list[str]:
    classes = f"{peers()}/bookkeeper/lib/*{os.pathsep}{target().resolve()}/programs/java"
    return ["java", "-Xmx256m", "-XX:MaxDirectMemorySize=128m", f"-Dlog4j2.configurationFile={SESSIONS}/log4j2.properties", "-cp", classes, *argv]


def bookkeeper(home: Home) -> Command:
    """A bookie; what ZooKeeper keeps for it lies on no disk that is cut."""
    settings = BOOKKEEPER_SETTINGS.format(metadata=bookkeeper_metadata(home), data=home.data, port=home.port, host=HOST)
    of_zookeeper = zookeeper(Home(home.beside / "metadata", home.beside, ports=home.ports[1:]))
    return Command(bookkeeper_java("BookKeeperServer", home.write("bookkeeper.conf", settings)), helper=of_zookeeper.argv)


TARANTOOL_SCRIPT = """
box.cfg{listen='127.0.0.1:%s', wal_mode='fsync', work_dir='%s', memtx_memory=64*1024*1024, log_level=3%s}
box.once('lab', function()
    box.schema.space.create('lab'):create_index('primary', {type = 'tree', parts = {1, 'unsigned'}})
    box.schema.user.grant('guest', 'read,write', 'space', 'lab')
end)
"""


def tarantool(home: Home) -> Command:
    small = "".join(home.small(", wal_max_size=65536, checkpoint_count=2"))
    return Command([str(peers() / "bin/tarantool"), home.write("init.lua", TARANTOOL_SCRIPT % (home.port, home.data, small))])


def opensearch(home: Home) -> Command:
    classes = f"{peers()}/opensearch/lib/*{os.pathsep}{target().resolve()}/programs/java"
    logging = f"-Dlog4j2.configurationFile={SESSIONS}/log4j2.properties"
    argv = ["java", "-Xmx256m", logging, "-cp", classes, "OpenSearchServer", str(home.beside), str(home.data), home.port, str(home.ports[1])]
    return Command(argv)


VALKEY = shutil.which("valkey-server") or str(peers() / "bin/valkey-server")
VALKEY_MODULE = str(peers() / "bin/numbers_module.so")


def valkey(home: Home) -> Command:
    """With a module, which has a log of its own. A rewritten append-only file begins with a snapshot, or with the module's own commands."""
    argv = [VALKEY, "--port", "0", "--unixsocket", str(home.beside / "socket"), "--dir", str(home.data), "--save", ""]
    argv += ["--appendonly", "yes", "--appendfsync", "always", *home.small("--auto-aof-rewrite-min-size", "64kb")]
    argv += ["--aof-use-rdb-preamble", "yes" if home.ports[0] % 2 else "no"]
    return Command([*argv, "--loadmodule", VALKEY_MODULE, str(home.beside / "module.log")])


SLAPD_SETTINGS = """
include {schema}/core.schema
modulepath {modules}
moduleload back_mdb
pidfile {beside}/slapd.pid
argsfile {beside}/slapd.args
database mdb
suffix dc=lab
rootdn cn=root,dc=lab
rootpw lab
directory {data}
maxsize 268435456
"""


def openldap(home: Home) -> Command:
    root = peers() / "openldap"
    modules = next(root.glob("usr/lib/ldap"), root)
    settings = SLAPD_SETTINGS.format(schema=root / "etc/ldap/schema", modules=modules, beside=home.beside, data=home.data)
    # In the foreground, and saying nothing.
    argv = [str(root / "usr/sbin/slapd"), "-d", "0", "-f", home.write("slapd.conf", settings), "-h", f"ldap://{HOST}:{home.port}/"]
    return Command(argv, {"LD_LIBRARY_PATH": str(next(root.glob("usr/lib/*-linux-gnu"), root))})


def derby(home: Home) -> list[str]:
    small = home.small("-Dderby.storage.logSwitchInterval=100000", "-Dderby.storage.checkpointInterval=100000")
    return java(["derby"], *small, "Session", f"jdbc:derby:{home.data}/lab;create=true")


WIREDTIGER = str(peers() / "bin/wiredtiger-session")
SQLITE_JNI = f"-Djava.library.path=/usr/lib/{os.uname().machine}-linux-gnu/jni"
NODE_LIBRARY = str(peers() / "node/node_modules/libsql")
PROGRAMS = [
    Program("sqlite-python", "lab.db-", (), lambda home: client("sqlite", str(home.data))),
    Program(
        "sqlite-java",
        "lab.db-",
        jars("sqlite-jdbc"),
        lambda home: java(["sqlite-jdbc"], SQLITE_JNI, "Session", f"jdbc:sqlite:{home.data}/lab.db?journal_mode=WAL&synchronous=FULL"),
    ),
    Program(
        "sqlite-node",
        "lab.db-",
        ("node", NODE_LIBRARY),
        lambda home: ["node", str(SESSIONS / "sqlite_session.js"), str(home.data), NODE_LIBRARY],
    ),
    Program("zookeeper", "version-2/log.", jars(*OF_ZOOKEEPER), lambda home: client("zookeeper", home.port), zookeeper),
    Program("rabbitmq", ".wal", ("erl", "epmd", str(rabbitmq_program())), lambda home: client("rabbitmq", home.port, "quorum"), rabbitmq),
    Program(
        "bookkeeper",
        ".txn",
        (*jars(*OF_ZOOKEEPER), str(peers() / "bookkeeper/lib")),
        lambda home: bookkeeper_java("BookKeeperSession", bookkeeper_metadata(home)),
        bookkeeper,
        is_made_durably=False,
    ),
    Program(
        "opensearch",
        "/translog/translog",
        (*jars(), str(peers() / "opensearch/lib")),
        lambda home: client("opensearch", home.port, *home.small("small")),
        opensearch,
    ),
    Program("tarantool", ".xlog", (str(peers() / "bin/tarantool"),), lambda home: client("tarantool", home.port), tarantool),
    Program(
        "valkey-module",
        ".aof",
        (VALKEY, VALKEY_MODULE),
        lambda home: client("redis", str(home.beside / "socket"), "module"),
        valkey,
    ),
    Program("java-channels", "lab.wal", jars(), lambda home: java([], "ChannelsLog", str(home.data)), is_measured=False),
    Program("derby", "log/log", jars("derby"), derby),
    Program("h2", None, jars("h2"), lambda home: java(["h2"], "Session", f"jdbc:h2:file:{home.data}/lab"), is_durable=False),
    Program(
        "berkeley",
        "log.0",
        ("/usr/lib/python3/dist-packages/bsddb3",),
        lambda home: ["/usr/bin/python3", str(SESSIONS / "berkeley_session.py"), str(home.data), *home.small("65536")],
    ),
    Program("wiredtiger", "WiredTigerLog", (WIREDTIGER,), lambda home: [WIREDTIGER, str(home.data)], options=("--profile", "wiredtiger")),
    Program("duckdb", ".wal", (), lambda home: client("duckdb", str(home.data), *home.small("64KB"))),
    Program("firebird", ".fdb", (), lambda home: client("firebird", str(home.data)), options=("--profile", "firebird"), is_made_durably=False),
    Program("openldap", None, (str(peers() / "openldap/usr/sbin/slapd"),), lambda home: client("openldap", home.port), openldap),
    Program("lmdb", None, (), lambda home: client("lmdb", str(home.data))),
]
