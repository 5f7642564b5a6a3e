# make build      bin/binlogmq, a static binary
# make test       everything, on real servers, with the race detector; gets what it needs
# make test-unit  only what needs no server
# make lint       format, vet, staticcheck, import rules, shell scripts
# make bench      speed: a line "figure NAME VALUE UNIT" for each
# make chaos      kill, freeze and cut everything, for long; KILLS, SINKS, SEED, PAUSES, DURATION, META=zookeeper, SERVER, NAMES, RACE=1
# make mutants    take guards out one at a time: the tests must notice; MUTANTS=regexp for some of them
# make fuzz       each fuzz target for FUZZTIME
# make demo       a database, two brokers, a workload, and what arrives; ONESHOT=1: check and end
# make servers    start the servers that tests share and leave them running; make servers-down
# make clean      remove what the others made, stopping servers

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
CACHE := $(or $(BINLOGMQ_CACHE),$(XDG_CACHE_HOME),$(HOME)/.cache)
export PATH := $(PATH):$(CACHE)/binlogmq-go/bin

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
TEST_TIMEOUT ?= 60m
FUZZTIME ?= 10s
# Of make chaos: SIGKILLs, sinks that take part (sequenced, transactional, at_least_once: Kafka; wire, batched, client: Pulsar), zombies that
# sleep for two minutes, and a limit on the time such as 30m. A seed repeats a schedule; without one the clock gives it.
KILLS ?= 300
SINKS ?= sequenced,transactional,at_least_once,wire,batched,client
PAUSES ?= 0
# Packages whose tests run at the same time; each may start servers of its own.
TEST_PARALLEL ?= 2
# What takes longest begins first, so that nothing is left to run alone at the end.
TEST_FIRST := ./test/e2e ./sink/pulsar ./sink/kafka ./test/compat

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ARCH_LINT := github.com/fe3dback/go-arch-lint@v1.15.0

.PHONY: build test test-unit lint bench chaos mutants fuzz demo prepare servers servers-down clean

build:
	CGO_ENABLED=0 go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/binlogmq ./cmd/binlogmq

prepare:
	testenv/prepare.sh

# Downloads first, since they are not the tests' time. The servers that the tests started end with them, also
# on Ctrl-C; the exit code is the tests'.
test: prepare
	testenv/servers.sh fetch
	trap 'testenv/servers.sh down' EXIT; trap 'exit 130' INT TERM; \
	go test -json -race -tags integration -count=1 -p $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) $(TEST_FIRST) ./... | go run ./test/report

test-unit:
	go test -timeout 5m ./...

lint:
	unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }
	go vet ./...
	go vet -tags integration,bench ./...
	go run $(STATICCHECK) -tags integration,bench ./...
	go run $(ARCH_LINT) check --project-path . --output-color=false
	for script in .ci/run $$(git ls-files '*.sh'); do bash -n $$script; done
	if command -v shellcheck >/dev/null; then shellcheck -S warning -x .ci/run $$(git ls-files '*.sh'); fi

# On real servers first, then each package's own.
bench: prepare build
	trap 'testenv/servers.sh down' EXIT; trap 'exit 130' INT TERM; \
	BINLOGMQ_TEST_BINARY=$(CURDIR)/bin/binlogmq go test -tags bench -count=1 -v -timeout $(TEST_TIMEOUT) ./test/bench
	go test -run '^$$' -bench . -benchmem ./...

chaos: prepare
	testenv/servers.sh fetch
	BINLOGMQ_CHAOS_SEED=$(SEED) BINLOGMQ_CHAOS_KILLS=$(KILLS) BINLOGMQ_CHAOS_SINKS=$(SINKS) BINLOGMQ_CHAOS_PAUSES=$(PAUSES) \
	BINLOGMQ_CHAOS_DURATION=$(DURATION) BINLOGMQ_CHAOS_META=$(META) BINLOGMQ_CHAOS_RACE=$(or $(RACE),0) \
	BINLOGMQ_CHAOS_SERVER=$(SERVER) BINLOGMQ_CHAOS_NAMES=$(NAMES) \
	go test -tags integration -count=1 -v -timeout 24h -run '^TestChaos$$' ./test/chaos

mutants:
	go run ./test/mutation -run '$(MUTANTS)'

# One target at a time: go test fuzzes no more in one call.
fuzz:
	go list -f '{{.Dir}}' ./... | while read -r dir; do \
	  for target in $$(cat "$$dir"/*_test.go 2>/dev/null | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do \
	    echo "$${dir#$$PWD/} $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null; \
	  done; done

demo:
	testenv/prepare.sh demo
	$(MAKE) build
	ONESHOT=$(ONESHOT) test/demo/run.sh

servers: prepare
	testenv/servers.sh up mysql mariadb mariadb11 kafka pulsar

servers-down:
	testenv/servers.sh down

clean: servers-down
	rm -rf bin
