# Plimsoll. `make demo` shows the main job, `make test` tests everything; both set up what they need and say what.

export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO ?= cargo
# Where `make install` puts things.
PREFIX ?= /usr/local
INSTALLED = $(DESTDIR)$(PREFIX)
# What this machine cannot build is left out, and the script says so; asked when it is needed, after the setup.
FLAGS = $(shell scripts/build-flags.sh)

.PHONY: help setup build install uninstall demo test format lint unit acceptance scenarios bench bench-peers guest-tests fuzz soak clean

help: ## Lists the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Installs Debian packages and Rust where they are missing (names them; without root only says so)
	@scripts/setup.sh

build: setup ## Builds the plimsoll command: target/release/plimsoll
	$(CARGO) build --release --bin plimsoll $(FLAGS)

install: build ## Installs the command, its manual and a systemd unit below PREFIX (/usr/local); DESTDIR goes before it
	install -D -m 755 target/release/plimsoll $(INSTALLED)/bin/plimsoll
	$(INSTALLED)/bin/plimsoll man-pages $(INSTALLED)/share/man/man1
	install -d $(INSTALLED)/lib/systemd/system
	sed 's|@BIN@|$(PREFIX)/bin|' packaging/plimsoll.service >$(INSTALLED)/lib/systemd/system/plimsoll.service

uninstall: ## Removes what install put there
	rm -f $(INSTALLED)/bin/plimsoll $(INSTALLED)/share/man/man1/plimsoll.1 $(INSTALLED)/share/man/man1/plimsoll-*.1 \
	    $(INSTALLED)/lib/systemd/system/plimsoll.service

demo: build ## Two tenants on one slow disk, without and with Plimsoll; draws demo.svg (about 1 minute and the build)
	target/release/plimsoll demo --out demo.svg

test: setup format ## All tests (about a quarter of an hour on two cores, a third of it building); names a test that hangs
	@CARGO=$(CARGO) scripts/unit-tests.sh --lint $(FLAGS)

format:
	$(CARGO) fmt --all --check

lint: format
	$(CARGO) clippy --workspace --all-targets --quiet $(FLAGS) -- -D warnings

unit:
	@CARGO=$(CARGO) scripts/unit-tests.sh $(FLAGS)

# Promise: zygaria-real-time.
acceptance: build ## The promises of the foundation, measured for real: 60 s each (about 10 minutes)
	$(CARGO) build --release -p plimsoll-serve --example promises
	bench/acceptance.sh

scenarios: build ## Every scenario on the simulator: results/report.html
	target/release/plimsoll scenario run all --out results

bench: setup ## Benchmarks of schedulers, data path, tags and gates (about 15 minutes)
	$(CARGO) bench --workspace $(FLAGS)
	@if [ "$$(id -u)" = 0 ]; then bench/fuse-loop.sh; else echo "not run: bench/fuse-loop.sh needs root"; fi
	bench/live.sh

bench-peers: build ## Compares with nbdkit, qemu-nbd and libCacheSim (about 8 minutes; installs them)
	@scripts/setup.sh peers
	bench-peers/run.sh
	bench-peers/cache.sh || [ $$? = 3 ]

guest-tests: setup ## Tests of what depends on the kernel, on Debian 12's in QEMU (an hour without KVM; installs QEMU, downloads 70 MB)
	@scripts/setup.sh guest
	scripts/guest-tests.sh || [ $$? = 3 ]

fuzz: setup ## Fuzzes every parser, SECONDS each (default 60)
	@for target in $$(ls fuzz/fuzz_targets | sed 's/\.rs$$//'); do fuzz/run.sh $$target $(or $(SECONDS_EACH),60) || exit 1; done

soak: build ## Load, kill -9 and restart, verified, and beside it the cache's crash search: for SOAK_MINUTES (default 10), then SOAK_KILLS (default 200) of caches of either semantics and of an encrypted volume
	CARGO=$(CARGO) bench/soak-beside-search.sh $(or $(SOAK_MINUTES),10)
	SOAK_KILLS=$(or $(SOAK_KILLS),200) $(CARGO) test -p plimsoll-cli --test up $(FLAGS) -- --ignored --nocapture many_kills_under_load
	POWER_MINUTES=$$(( ($(or $(SOAK_MINUTES),10) + 4) / 5 )) $(CARGO) test -p plimsoll-engine --test power_failure -- --ignored --nocapture

clean: ## Removes what was built
	$(CARGO) clean
