# results records the reports of docs/results anew on this machine's card, into
# RESULTS: every scenario there and linear, in float32 and in mixed precision.
RESULTS ?= .build/results
.PHONY: results
results: gpu
	sh make/results.sh bin/tidemark $(RESULTS)
