# fuzz runs every fuzz target for two minutes; FUZZTIME=5s is a short form.
FUZZTIME ?= 2m

.PHONY: fuzz
fuzz:
	GO="$(GO)" sh make/fuzz.sh $(FUZZTIME)
