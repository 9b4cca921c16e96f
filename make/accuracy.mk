# accuracy compares the predictions with what PyTorch used on a card and writes
# docs/accuracy.md.
.PHONY: accuracy
accuracy:
	$(GO) run ./predict/accuracy/accuracydoc
