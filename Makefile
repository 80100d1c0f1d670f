# One gate, the same here and in CI. Tools are installed to .build/ by .ci/setup; where
# they are is said in .ci/env.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Backends whose absence is a failure and not a skip: make test TEST_REQUIRE=gvisor,npm
export TEST_REQUIRE

PKG ?= ./...
RUN ?= .
SEEDS ?= 2000
CYCLES ?= 200
FUZZTIME ?= 10s
go_test := -race -count=1 -timeout=30m

.PHONY: help demo build unit test slowest check fmt vet lint tidy sim soak fuzz bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## install what is missing and show the main job in a real box (as root)
	@.ci/setup demo
	@source .ci/env; psbx demo

build: ## build psbx, boxd and parallelsandbox-mcp into .build/bin
	@.ci/setup build

unit: ## fast tests: no root, no boxes, nothing to install; PKG=./domain/... RUN=TestX
	@go test -short -run '$(RUN)' $(PKG)

test: ## install what is missing and run every test with -race (boxes need root)
	@.ci/setup test
	@source .ci/env; gotestsum --format pkgname --jsonfile .build/test.json -- $(go_test) -run '$(RUN)' $(PKG)

slowest: ## the tests that took longest in the last make test
	@source .ci/env; gotestsum tool slowest --threshold 5s --jsonfile .build/test.json

check: fmt vet lint tidy test ## everything a change must pass

fmt: ## fail on files that gofmt would change
	@bad=$$(gofmt -l $$(ls -d cmd domain projections adapters hypervisor schemas)); \
	if [ -n "$$bad" ]; then printf 'not formatted; run gofmt -w on:\n%s\n' "$$bad"; exit 1; fi

vet: ## go vet
	@go vet ./...
	@go vet -tags minimal ./cmd/...

# Not S1016: a command and the event it leads to are alike today and have no reason to
# stay so, and what is stored is written out field by field.
lint: ## staticcheck, tests included
	@.ci/setup test
	@source .ci/env; staticcheck -checks inherit,-S1016 ./...

tidy: ## fail when go.mod or go.sum are not what the code needs
	@go mod tidy -diff

sim: ## the simulation over many seeds: make sim SEEDS=20000
	@SEEDS=$(SEEDS) go test -count=1 -timeout=60m -run Sim ./hypervisor/worker

soak: ## real boxes started, frozen, thawed and stopped while the service is killed: make soak CYCLES=500
	@.ci/setup test
	@source .ci/env; PSBX_SOAK=1 CYCLES=$(CYCLES) go test -race -count=1 -v -timeout=90m -run 'TestSoak|TestLifecycleInRealBoxes|TestManyViewers' ./cmd/psbx

fuzz: ## every fuzz target, each for FUZZTIME (10s)
	@grep -rno --include='*_test.go' 'func Fuzz[A-Za-z0-9_]*' cmd domain projections adapters hypervisor | while IFS=: read -r file _ name; do \
		go test -run '^$$' -fuzz "^$${name#func }\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" </dev/null; \
	done

bench: ## measure against the floors of this machine; BENCH=--json for rows
	@.ci/setup test
	@source .ci/env; psbx bench $(BENCH)

clean: ## remove what was built and installed here (images of boxes stay)
	@rm -rf .build
