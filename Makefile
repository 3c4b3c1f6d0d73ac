# The one entry point: `make` lists what it can do. Each target installs what it needs first.

AARCH64 := aarch64-unknown-linux-gnu
# From the command line alone: a shell may have one, which is of something else.
ifeq ($(origin ARCH),environment)
ARCH :=
unexport ARCH
endif
SECONDS ?= 60
BENCH_DIR := target/bench
LOCKED := $(if $(CI),--locked)
# A machine that builds once has no use for what the next build would reuse: gigabytes of disk.
ifdef CI
export CARGO_INCREMENTAL := 0
endif
BUILD := cargo build --release $(LOCKED) -p forebay -p forebay-preload
FOREBAY := $(or $(CARGO_TARGET_DIR),target)/release/forebay
# The program that measures what the documents say, and demonstrates; it finds forebay, libforebay.so and libforebay_lab.so beside itself.
FOREBAY_LAB := $(FOREBAY)-lab
BUILD_LAB := $(BUILD) -p forebay-lab -p forebay-lab-preload -p forebay-peers
# All there are.
FUZZ_TARGETS := $(subst _,-,$(sort $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))))
# The power-cut lab: cycles of each workload, which ones, cycles of each control, where the report goes.
N ?= 20
WORKLOAD ?= all
CONTROLS ?= $(if $(filter all,$(WORKLOAD)),8,0)
REPORT ?= $(if $(filter all,$(WORKLOAD)),lab/powercut/REPORT.md,$(or $(CARGO_TARGET_DIR),target)/powercut.md)
# The programs that people run: kills and cuts of each under Forebay, or measurements of each in turn.
TIMES ?= 5
# Simulated machines: seeds.
SEEDS ?= 1000
# The suites: cuts of each variant.
ROUNDS ?= 100
LAB_PROGRAMS := -p forebay -p forebay-preload -p forebay-powercut
LAB := $(or $(CARGO_TARGET_DIR),target)
# Programs that tests and laboratories can disturb (crates/pool/src/failpoint.rs), in $(LAB)/failpoints: what cargo builds for tests is so too,
# by dev-dependencies, and nothing else is.
BUILD_FAILPOINTS := cargo build --profile failpoints --features forebay/failpoints,forebay-preload/failpoints,forebay-powercut/failpoints $(LOCKED) $(LAB_PROGRAMS)

# rustup and cargo install put their programs here, also where the shell's PATH does not say so.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: docs help setup demo check test test-long wheel bench-python packages test-packages test-systemd image test-containers test-programs bench-programs test-legs bench-legs bench-kernel test-many-files test-aarch64 test-arm64 build-times simulate failpoints powercut powercut-quick suites bench bench-quick lint fmt fuzz advisories

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## Install what test, lint, demo and bench need (Debian packages)
	@scripts/setup.sh all

demo: ## Show the store and an unmodified Redis at work, and kill both
	@scripts/setup.sh demo
	$(BUILD) -p forebay-lab
	$(FOREBAY_LAB) demo

# What a change is checked with while it is being made.
check: ## Format, lint and unit tests of the packages that differ from SINCE [the remote's main], and its commits' subjects: minutes
	@scripts/setup.sh lint
	cargo fmt --all --check
	scripts/wrap.py --check
	scripts/promises.py --check
	scripts/names.py --check
	scripts/circles.py
	scripts/faults.py --check
	scripts/examples.py --check
	scripts/commits.py $(SINCE)
	@packages=$$(scripts/changed.sh $(SINCE)); \
	if [ -z "$$packages" ]; then echo "no package differs"; exit 0; fi; \
	set -ex; \
	cargo clippy $(LOCKED) $$packages --all-targets -- -D warnings; \
	cargo test $(LOCKED) $$packages --lib --bins

# Tests wait for servers and disks most of the time: several programs of them run side by side.
test test-long: export RUST_TEST_THREADS ?= $(shell nproc)
test: export TESTS := short
test: ## Run what must pass: lint, and every promise's test but those of the power-cut lab and the suites
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory lint
	scripts/run_tests.py --workspace $(LOCKED)
	python3 -m unittest -q suites.selftest lab.programs.selftest lab.legs.selftest lab.kernel.selftest scripts.test_build_times scripts.test_commits scripts.test_dependencies scripts.test_examples scripts.test_faults scripts.test_kubernetes scripts.test_promises scripts.test_names scripts.test_circles scripts.test_links scripts.test_run_tests scripts.test_wrap
	@if [ "$$(id -u)" = 0 ]; then FOREBAY=$(LAB)/debug/forebay python3 -m suites --only order --rounds 8; else echo "skipped: cuts of file systems need root"; fi

# What takes long and seldom finds what `make test` does not.
test-long: export TESTS := long
test-long: ## Run the rest: the laboratory at toy size, pools on a disk, power cuts of each workload of what ships
	@scripts/setup.sh test
	scripts/run_tests.py --workspace $(LOCKED)
	cargo test $(LOCKED) -p forebay-store --no-default-features --test fixtures --test without_tls
	cargo publish --dry-run --no-verify --allow-dirty $(LOCKED) -p forebay-pool -p forebay-store
	TESTS=all FOREBAY_TEST_POOLS=disk scripts/run_tests.py --workspace $(LOCKED) --test run_descriptors --test run_handlers --test run_members --test run_processes --test run_redis \
		--test run_sqlite --test run_postgres
	@if [ "$$(id -u)" = 0 ] && [ -e /dev/loop-control ]; then \
		scripts/setup.sh programs-quick && \
		FOREBAY=$(LAB)/debug/forebay unshare --mount python3 -m lab.programs --only zookeeper --only tarantool --only java-channels; \
	else \
		echo "skipped: kills and cuts of the programs that people run: they need root and loop devices"; \
	fi
	@if [ "$$(id -u)" = 0 ] && [ -e /dev/loop-control ] && unshare --mount --pid --net --fork true; then \
		scripts/setup.sh legs-quick && \
		FOREBAY=$(LAB)/debug/forebay python3 -m lab.legs --rounds 18 --quick; \
	else \
		echo "skipped: losses of machines and their legs: they need root, loop devices and namespaces"; \
	fi
	cargo build $(LOCKED) -p forebay -p forebay-preload
	scripts/faults.py --programs $(LAB)/debug/forebay $(LAB)/debug/libforebay.so
	@scripts/setup.sh wheel
	scripts/wheel.py --profile dev --check
	$(LAB)/peers/venv/bin/python -m unittest -q lab.python.selftest
	@$(MAKE) --no-print-directory powercut-quick

# The seeds are others each time, unless one is given.
simulate: ## Kill and cut the files tier on simulated machines: SEEDS=1000, SEED=... for the first, TRACE=1 for each step of it
	@scripts/setup.sh test
	cargo build $(LOCKED) -p forebay-files --example lab
	FOREBAY_SEED=$(or $(SEED),$(shell date +%s)) FOREBAY_SEEDS=$(SEEDS) $(if $(TRACE),FOREBAY_TRACE=1) \
		cargo test $(LOCKED) -p forebay-files --test simulation what_was_synced -- --nocapture

failpoints: ## Build forebay and libforebay.so as tests have them: they obey FOREBAY_TEST_BOOT_ID and the like; in target/failpoints/
	$(BUILD_FAILPOINTS)

powercut: ## Cut the power of machines: N=20 cycles, WORKLOAD=store|redis|valkey|rocksdb|sqlite|mariadb|postgres|etcd|nats|mariadb-flash|sqlite-processes|all, MACHINE=emulated|namespace, SEED=..., CONTROLS=..., POOL=fsdax|devdax|memory|disk|disk-file|mirror|legs|leg-disk, FILE_SYSTEM=ext4|xfs, ACCEL=kvm|tcg, RESULTS=FILE, REPORT=FILE, KEEP=DIR
	@scripts/setup.sh powercut
	cargo build $(LOCKED) $(LAB_PROGRAMS)
	$(BUILD_FAILPOINTS)
	$(LAB)/debug/forebay-powercut --cycles $(N) --workload $(WORKLOAD) --controls $(CONTROLS) $(if $(SEED),--seed $(SEED)) \
		$(if $(MACHINE),--machine $(MACHINE)) $(if $(FILE_SYSTEM),--file-system $(FILE_SYSTEM)) $(if $(POOL),--pool $(POOL)) \
		$(if $(ACCEL),--accel $(ACCEL)) $(if $(RESULTS),--results $(RESULTS)) $(if $(KEEP),--keep $(KEEP)) \
		--failpoints $(LAB)/failpoints --report $(REPORT)

# As what ships: no failpoints. Emulated machines show what namespaces cannot, and take long: two workloads, one for each front end's half.
powercut-quick: ## Power cuts of each workload, as part of make test-long: of machines in namespaces, and some of emulated ones
	@if [ "$$(uname -m)" = x86_64 ]; then \
		scripts/setup.sh powercut && \
		cargo build $(LOCKED) $(LAB_PROGRAMS) && \
		$(LAB)/debug/forebay-powercut --cycles 2 --workload store,redis,postgres && \
		$(LAB)/debug/forebay-powercut --cycles 2 --workload redis --pool legs && \
		if [ "$$(id -u)" != 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ] || ! unshare --mount --pid --net --fork true; then \
			echo "skipped: power cuts of machines in namespaces: they need root, FUSE, loop devices and namespaces"; \
		else \
			$(LAB)/debug/forebay-powercut --machine namespace --pool disk --cycles 4 --workload all,redis-eatmydata,etcd-no-sync; \
		fi; \
	else \
		echo "skipped: the power-cut lab: its machines are x86-64"; \
	fi

# Long: not a part of make test. The cuts need root and loop devices, and are named as not run without.
suites: ## Other people's test suites plain and under Forebay, and cuts: ONLY=NAME for one, ROUNDS=100, SEED=...
	@scripts/setup.sh suites
	cargo build $(LOCKED) -p forebay -p forebay-preload
	$(BUILD_FAILPOINTS)
	nice python3 -m suites --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) --write docs/suites.md

# qemu-user of Debian 12 announces `dc cvap` on newer processors but cannot run it, hence the Cortex-A72,
# where the pool has to fall back to `dc cvac`. Nor has it pwritev2 (hence no pools on a disk), it does not run the programs that an
# emulated one starts, and does not tell of a mapping what its kernel was advised. All of that a kernel has (test-arm64).
# Emulation is slow, hence fewer cases per property, a target of its own, and without the walks through every order of a shared lane's
# steps (explore), which take one step at a time on any processor.
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER = qemu-aarch64 -cpu cortex-a72 -L /usr/aarch64-linux-gnu
test-aarch64: export PROPTEST_CASES ?= 16
test-aarch64: ## Build the pool for aarch64 and run its tests under qemu-user
	@scripts/setup.sh aarch64
	cargo test -p forebay-pool $(LOCKED) --target $(AARCH64) --lib \
		--test changing --test crash --test fixtures --test fuzzed --test lane --test ownership --test processes --test resident --test threads \
		-- --skip media::disk --skip media::mapping::tests::a_mapping_is --skip shared::tests::attack::nonsense --skip shared::tests::kills --skip shared::tests::locks --skip shared::tests::explore \
		--skip pool::copy_lane::tests::a_lane_in_use --skip rights::tests::child_ --skip rights::tests::killed_child --skip rights::tests::large_answer \
		--skip rights::tests::user_that_the_namespace_lacks

# Of another architecture than this machine's: what compiles for it, and runs its programs for their manual pages.
wheel: ## Make the wheel of the Python package for this machine: target/wheels
	@scripts/setup.sh wheel
	scripts/wheel.py

bench-python: ## Measure the Python package beside plyvel, rocksdict and sqlite3: BENCH="--dir DIR --rounds N"
	@scripts/setup.sh test wheel
	scripts/wheel.py
	$(LAB)/peers/venv/bin/python -m lab.python $(BENCH)

packages: ## Make the .deb, the .rpm and the tarball for this machine, and their debug symbols: target/packages; ARCH=arm64 by a cross compiler: target/packages-arm64
	@scripts/setup.sh packages $(if $(ARCH),$(if $(filter $(ARCH),$(shell dpkg --print-architecture)),,aarch64))
	scripts/package.sh $(if $(FROM),--from $(FROM))

test-packages: ## Install, use, upgrade and remove the .deb in a fresh Debian 12 (needs root and Debian's archive); FROM=DIR takes programs that are built
	@scripts/setup.sh packages test-packages
	scripts/test_packages.sh $(if $(FROM),--from $(FROM))

test-systemd: ## Take Debian's units through their lives under a real systemd, in a virtual machine (needs root and Debian's archive); FROM=DIR, ONLY=redis|valkey|postgres|mariadb|etcd|refusals, POOL=pmem|disk, CONTAINER=1 in a container
	@scripts/setup.sh packages test-systemd
	scripts/test_systemd.sh $(if $(FROM),--from $(FROM)) -- $(if $(ONLY),--only $(ONLY)) $(if $(POOL),--pool $(POOL)) $(if $(CONTAINER),--container)

image: ## Make the OCI image of forebay for this machine, an archive in target/image (buildah, no daemon); FROM=DIR takes programs that are built
	@scripts/setup.sh image
	scripts/image.sh $(if $(FROM),--from $(FROM))

test-containers: ## Take Redis, PostgreSQL and etcd through the lives of containers (podman; needs root and Debian's archive); FROM=DIR, ONLY=TEXT of a trial's name
	@scripts/setup.sh test-containers
	scripts/test_containers.sh $(if $(FROM),--from $(FROM)) -- $(if $(ONLY),--only '$(ONLY)')

# Under Forebay with failpoints, which can be told that this is another boot. In a mount namespace: one that somebody else makes meanwhile would hold the disks.
test-programs: ## Take ZooKeeper, RabbitMQ, Tarantool, databases inside Java, Python and Node.js, and more through kills and cuts (needs root and loop devices); ONLY=NAME, TIMES=5 kills and cuts, SEED=...
	@scripts/setup.sh test-programs
	$(BUILD_FAILPOINTS)
	unshare --mount python3 -m lab.programs $(addprefix --only ,$(ONLY)) --rounds $(TIMES) $(if $(SEED),--seed $(SEED))

bench-programs: ## Measure the same programs plain, with libeatmydata and under Forebay, and an installation of packages; ONLY=NAME, TIMES=5 in turn
	@scripts/setup.sh test-programs test-packages
	$(BUILD)
	FOREBAY=$(FOREBAY) python3 -m lab.programs --speed $(addprefix --only ,$(ONLY)) --repeat $(TIMES)
	$(if $(ONLY),,FOREBAY=$(FOREBAY) python3 -m lab.programs.installs)

# In network and mount namespaces of its own, which it makes itself.
test-legs: ## Lose machines, legs and networks under Redis, PostgreSQL and SQLite whose pool is in other machines' memory (needs root, loop devices and network namespaces); TIMES=100 rounds, ONLY=NAME, SEED=...
	@scripts/setup.sh test-legs
	$(BUILD_FAILPOINTS)
	python3 -m lab.legs $(addprefix --only ,$(ONLY)) --rounds $(if $(filter file,$(origin TIMES)),100,$(TIMES)) $(if $(SEED),--seed $(SEED))

bench-legs: ## Measure a commit on two legs beside an echo of the same bytes, and Redis and PostgreSQL beside what they do plainly
	@scripts/setup.sh test-legs
	$(BUILD) -p forebay-lab -p forebay-lab-preload
	FOREBAY=$(FOREBAY) python3 -m lab.legs --speed

test-many-files: ## A hundred thousand logs of one run: killed, cut off, recovered (as root, some 40 minutes and 12 GiB of memory)
	@scripts/setup.sh test-many-files
	scripts/test_many_files.sh

test-arm64: ## Run Redis, SQLite, PostgreSQL and etcd with Debian's kernel for arm64 in an emulated machine: killed, and cut off (needs root and Debian's archive); FROM=DIR takes programs that are built, DEB=FILE a package, ONLY=redis|sqlite|postgres|etcd
	@scripts/setup.sh aarch64 test-arm64
	scripts/test_arm64.sh $(if $(FROM),--from $(FROM)) $(if $(DEB),--deb $(DEB)) -- $(if $(ONLY),--only $(ONLY))

bench-kernel: ## Measure dm-writecache, bcache, ZFS with a log device and Forebay under the same databases in an emulated machine, and take their fast device away (needs root and Debian's archive); FROM=DIR takes programs that are built, BENCH="--quick --only NAME"
	@scripts/setup.sh bench-kernel
	$(if $(FROM),,$(BUILD))
	python3 -m lab.kernel --programs $(or $(FROM),$(dir $(FOREBAY))) $(BENCH)

# measure NAME FLAGS: the report appears only when the run was complete.
define measure
	@mkdir -p $(BENCH_DIR)
	$(FOREBAY_LAB) $(2) --json > $(BENCH_DIR)/$(1).json.partial
	@mv $(BENCH_DIR)/$(1).json.partial $(BENCH_DIR)/$(1).json
	@echo "wrote $(BENCH_DIR)/$(1).json"
endef

# papers SIZE-OPTION NAME: the papers' experiments and their report. RESUME=1 goes on with an interrupted run.
define papers
	$(FOREBAY_LAB) paper $(1) $(if $(RESUME),--resume) --out $(BENCH_DIR)/$(2)
	$(FOREBAY_LAB) report $(BENCH_DIR)/$(2) --html $(BENCH_DIR)/$(2).html --markdown $(BENCH_DIR)/$(2).md
endef

bench: ## Measure everything against its peers, and the papers' tables (hours; RESUME=1 goes on); reports in target/bench/
	@scripts/setup.sh bench
	$(BUILD_LAB)
	$(BUILD_FAILPOINTS)
	$(call measure,pool,pool)
	$(call measure,device,device)
	$(call measure,wisckey,wisckey --peers)
	$(call measure,ycsb,ycsb --peers)
	$(call measure,redis,redis --during-rewrite)
	$(call measure,rocksdb,rocksdb)
	$(call measure,mariadb,mariadb)
	$(call measure,postgres,postgres)
	$(call measure,etcd,etcd)
	$(call measure,nats,nats)
	$(call measure,synced-write,synced-write)
	$(call measure,fam,fam)
	$(call papers,,papers)

bench-quick: ## The benchmarks at toy size (they run, not how fast), and the papers' tables in minutes
	@scripts/setup.sh bench
	$(BUILD_LAB)
	$(BUILD_FAILPOINTS)
	$(call measure,pool-quick,pool --quick)
	$(call measure,device-quick,device --quick)
	$(call measure,wisckey-quick,wisckey --peers --quick)
	$(call measure,ycsb-quick,ycsb --peers --quick)
	$(call measure,redis-quick,redis --quick)
	$(call measure,rocksdb-quick,rocksdb --quick)
	$(call measure,mariadb-quick,mariadb --quick)
	$(call measure,postgres-quick,postgres --quick)
	$(call measure,etcd-quick,etcd --quick)
	$(call measure,nats-quick,nats --quick)
	$(call measure,synced-write-quick,synced-write --quick)
	$(call measure,fam-quick,fam --quick)
	$(call papers,--quick,papers-quick)

build-times: ## Measure how long programs take to build that have one dependency each: the store, fjall, redb; ROUNDS=3 in turn
	@scripts/setup.sh lint
	scripts/build_times.py $(if $(filter file,$(origin ROUNDS)),,--rounds $(ROUNDS))

lint: ## Check formatting, clippy, the libraries' documentation, licences, shell scripts, links between documents, Kubernetes' manifests, the promises, the names of types and of tests, files' heads, circles of files, who reads the variables of tests, examples, what the store depends on, and the C header
	@scripts/setup.sh lint
	cargo fmt --all --check
	scripts/wrap.py --check
	cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings
	cargo clippy $(LOCKED) $(LAB_PROGRAMS) -- -D warnings
	cargo clippy $(LOCKED) -p forebay-store --lib --no-default-features -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc $(LOCKED) --no-deps -p forebay-pool -p forebay-store
	scripts/licences.sh
	scripts/links.py
	scripts/kubernetes.py
	scripts/promises.py --check
	scripts/names.py --check
	scripts/circles.py
	scripts/faults.py --check
	scripts/examples.py --check
	scripts/dependencies.py --check
	scripts/store_c.sh --check
	shellcheck scripts/*.sh packaging/*.sh examples/*.sh examples/*/*.sh .ci/run
	shellcheck --shell=dash lab/powercut/src/*.sh lab/guest/src/*.sh lab/arm64/guest/init.sh lab/kernel/guest/init.sh
	shellcheck --shell=bash lab/kernel/guest/stack.sh lab/kernel/guest/bench.sh
	shellcheck lab/systemd/guest/*.sh lab/containers/image/*.sh lab/arm64/guest/start.sh lab/kernel/guest/start.sh

fmt: ## Format all Rust code, and wrap comments and documents
	@scripts/setup.sh lint
	cargo fmt --all
	scripts/wrap.py

# What a thread leaves to the kernel for its end (`mark_at_end_of_thread`) is no leak, and would end the fuzzing of messages.
fuzz: export ASAN_OPTIONS = detect_leaks=0
fuzz: ## Fuzz each target of fuzz/fuzz_targets, SECONDS=60 each (nightly Rust)
	@scripts/setup.sh fuzz
	@set -e; for target in $(FUZZ_TARGETS); do \
		echo "cargo +nightly fuzz run $$target, $(SECONDS) s"; \
		mkdir -p "fuzz/corpus/$$target" "fuzz/seeds/$$target"; \
		cargo +nightly fuzz run --fuzz-dir fuzz "$$target" "fuzz/corpus/$$target" "fuzz/seeds/$$target" -- -max_total_time=$(SECONDS); \
	done

docs: ## Make the documentation site, with search and the papers' figures: target/docs/book/index.html
	@scripts/setup.sh docs
	cargo build $(LOCKED) -p forebay-lab
	@scripts/docs.sh $(LAB)/debug/forebay-lab

advisories: ## Check the dependencies against the RustSec advisories (needs the internet)
	@scripts/setup.sh advisories
	cargo deny check
