# Everything here also works with the go command alone; see README.md.
GO ?= go

.PHONY: build test lint bench run corpus pictures docs

build: ## build bin/tidemark
	$(GO) build -o bin/tidemark ./cmd/tidemark

test:
	$(GO) test ./...

lint:
	@test -z "$$(gofmt -l *.go bench cmd data device instrument nn optim predict scenarios train)" || { gofmt -l *.go bench cmd data device instrument nn optim predict scenarios train; exit 1; }
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench:
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./...

run:
	$(GO) run ./cmd/tidemark run linear

corpus: ## an English text of some megabytes, from Go's own documentation
	$(GO) run ./data/gocorpus -force corpus.txt

docs: ## the outputs in docs/scenarios.md, from runs on meta; a test compares them
	$(GO) test ./cmd/tidemark -count=1 -run TestDocuments -update

pictures: ## docs/*.png, from the runs that the documents show
	rm -rf .build/pictures
	$(GO) run ./cmd/tidemark run linear --device meta --workspace-bytes 34603008 --out .build/pictures/linear >/dev/null
	$(GO) run ./cmd/tidemark run peak-shift --device meta --out .build/pictures/peak-shift >/dev/null
	cp .build/pictures/linear/timeline.png docs/linear.png
	cp .build/pictures/peak-shift/timeline.png docs/peak-shift.png

-include $(wildcard make/*.mk)
