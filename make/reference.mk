# PyTorch's memory and values, recorded again: see reference/README.md.
.PHONY: reference reference-golden

REFERENCE_OUT ?= .build/reference
PYTHON ?= python3

reference: ## record everything again, on a machine with a CUDA device, PyTorch and transformers
	mkdir -p $(REFERENCE_OUT)
	$(PYTHON) reference/record.py --out $(REFERENCE_OUT)
	$(PYTHON) reference/install.py $(REFERENCE_OUT)

reference-golden: ## record values only, which needs no CUDA device
	mkdir -p $(REFERENCE_OUT)
	$(PYTHON) reference/record.py --out $(REFERENCE_OUT) golden families adapters
	$(PYTHON) reference/install.py $(REFERENCE_OUT)
