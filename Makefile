# Everything one does here has a target; `make` lists them.

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory

# Nothing needs C. Only the race detector does, and asks for it itself.
export CGO_ENABLED := 0

SERVICES      := modelgw toolexec sandboxd agentorch gateway
TAG           ?= dev
BIN           ?= bin
PREFIX        ?= $(HOME)/.local
# Bounds one package. Each wait in a test has a bound of its own; this one ends what those do not.
TIMEOUT       ?= 80m
FUZZTIME      ?= 30s
GOLDEN_REPORT := $(CURDIR)/bin/golden

# Packages where goroutines meet; tested with the race detector too, where a C compiler exists.
RACE_PKGS     ?= $(patsubst %,./%/...,$(wildcard pkg/cache pkg/effect pkg/lifecycle pkg/limit pkg/retry pkg/worker))

# Packages that take longest; they begin first, so that none of them is left alone at the end.
SLOW_PKGS     := ./services/sandboxd/internal/driver/local ./services/allinone/e2e ./services/sandboxd/internal/driver/docker ./bench
# How many packages are built and tested at once: one more than there are processors, since tests wait for a part of their time.
AT_ONCE       ?= $(shell echo $$(($$(nproc) + 1)))

# With CI=true or EVALFLEET_NO_SKIP=1 a skipped test fails the run.
NO_SKIP       := $(if $(filter true 1,$(CI) $(EVALFLEET_NO_SKIP)),-no-skip)
GOTEST        := go run ./scripts/gotest

# The protocol as one image, without the positions and comments that a comparison does not need.
IMAGE         := .tools/buf build --exclude-source-info --path proto/evalfleet

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- set-up

.PHONY: setup
setup: .tools/setup.stamp ## Fetch modules and missing packages: the only step that needs a network

.tools/setup.stamp: go.mod go.sum tools.mod tools.sum scripts/setup.sh scripts/venv.sh scripts/workers.sh $(wildcard scripts/requirements/*.txt) scripts/python.sh $(wildcard examples/worker-*/package-lock.json)
	@scripts/setup.sh
	@mkdir -p $(@D) && touch $@

.PHONY: tools
tools: .tools/tools.stamp ## Build buf, golangci-lint and gofumpt into .tools (about three minutes, once)

.tools/tools.stamp: tools.mod tools.sum
	@mkdir -p $(@D)
	go build -modfile=tools.mod -o .tools/ tool
	@touch $@

# ---- everyday

.PHONY: build
build: ## Build bin/evalfleet, which has the guest program within it
	@scripts/build.sh $(BIN)

.PHONY: install
install: build ## Copy evalfleet to PREFIX/bin (PREFIX=~/.local)
	@install -d '$(PREFIX)/bin' && install -m 755 $(BIN)/evalfleet '$(PREFIX)/bin/evalfleet'
	@echo 'installed $(PREFIX)/bin/evalfleet'
	@case ":$$PATH:" in *:'$(PREFIX)/bin':*) ;; *) echo 'it is not on your PATH: export PATH="$(PREFIX)/bin:$$PATH"' ;; esac

.PHONY: demo
demo: build ## Run the demonstration evaluation (MODEL=provider/name for a real model, DRIVER=docker for containers)
	$(if $(filter docker,$(DRIVER)),@bin/evalfleet sandbox image)
	@bin/evalfleet eval run examples/demo/task.yaml $(if $(MODEL),--model '$(MODEL)') $(if $(DRIVER),--driver '$(DRIVER)')

.PHONY: generate
generate: tools ## Generate Go, REST, OpenAPI and Python from proto
	.tools/buf format -w --path proto/evalfleet
	.tools/buf generate
	.tools/buf generate --template buf.gen.xai.yaml
	@scripts/python.sh generate

.PHONY: fmt
fmt: tools ## Format Go, Python and proto
	.tools/golangci-lint fmt
	@scripts/python.sh fmt
	.tools/buf format -w --path proto/evalfleet

.PHONY: lint
lint: tools ## Lint proto, Go and Python, compare the protocol with its baseline, check the parity table
	.tools/buf format --diff --exit-code --path proto/evalfleet
	.tools/buf lint
	$(IMAGE) -o .tools/current.binpb
	.tools/buf breaking .tools/current.binpb --against proto/baseline.binpb
	.tools/golangci-lint run
	@scripts/python.sh lint
	go run ./scripts/parity

.PHONY: baseline
baseline: tools ## Replace the protocol's baseline; a commit that does so brings an ADR
	$(IMAGE) -o proto/baseline.binpb

# ---- tests

.PHONY: test
test: announce setup ## Run every test: unit, suites, end to end; list what was skipped (RESULTS=file for what parity reads)
	@$(GOTEST) $(NO_SKIP) $(if $(RESULTS),-results '$(RESULTS)') -race '$(RACE_PKGS)' -- -timeout $(TIMEOUT) -p $(AT_ONCE) $(SLOW_PKGS) ./...

.PHONY: announce
announce:
	@echo 'test: takes about a quarter of an hour on two idle cores'
	@[[ -e .tools/setup.stamp ]] || echo 'test: first downloads about 1.5 GB: Go modules, inspect_ai and SDKs of vendors (pip), packages of node, and with apt as root what is missing of docker, redis-server, qemu, a kernel, nodejs'

.PHONY: test-short
test-short: ## Run the quick tests only
	@$(GOTEST) -- -short -timeout $(TIMEOUT) ./...

.PHONY: golden
golden: ## Replay the recorded cases and print a table by theme
	@rm -rf $(GOLDEN_REPORT) && mkdir -p $(GOLDEN_REPORT)
	@status=0; \
	EVALFLEET_GOLDEN_REPORT=$(GOLDEN_REPORT) $(GOTEST) -- -timeout $(TIMEOUT) -run Golden ./... || status=$$?; \
	$(MAKE) golden-table || status=$$?; \
	exit $$status

.PHONY: golden-table
golden-table: ## Print that table of what the last run of tests reported
	@go run ./pkg/goldentest/cmd/goldentable -cases '$(or $(EVALFLEET_GOLDEN),testdata/golden)' $(if $(EVALFLEET_GOLDEN),,-known testdata/known-differences) $(GOLDEN_REPORT)

.PHONY: parity
parity: ## Run the tests that the done rows of docs/parity.md name
	@go run ./scripts/parity -run

.PHONY: chaos
chaos: ## Kill the server at every boundary, over and over (ROUNDS=n)
	@EVALFLEET_CHAOS_ROUNDS=$(or $(ROUNDS),10) $(GOTEST) -- -timeout 1h -count 1 -run Chaos ./...

.PHONY: bench
bench: build ## Measure and write docs/benchmarks.md
	go run ./bench

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each
	@scripts/fuzz.sh $(FUZZTIME)

# ---- containers

.PHONY: image
image: ## Build the image of each service (TAG=dev)
	@for s in $(SERVICES); do \
		docker build --quiet -f deploy/docker/Dockerfile --build-arg SERVICE=$$s \
			--target $$([ $$s = sandboxd ] && echo sandboxd || echo service) -t evalfleet/$$s:$(TAG) .; \
	done

.PHONY: up
up: ## Start the five services with docker compose (MODELGW_CONFIG=file with the keys of providers)
	@scripts/compose.sh up

.PHONY: down
down: ## Stop them and remove the copy of the keys; data stays in its volumes
	@scripts/compose.sh down

# ---- other

.PHONY: ci
ci: ## What continuous integration runs
	@.ci/run

.PHONY: clean
clean: ## Remove what was built (not the tools: rm -r .tools)
	rm -rf bin
